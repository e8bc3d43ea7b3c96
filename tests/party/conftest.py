import sys
from pathlib import Path

for folder in ("party", "aggregation", "secagg"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
