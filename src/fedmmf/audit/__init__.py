"""Every attack on one run, and the results for users who would share in the clear.

`exposure` makes views of a run, `recording` of the messages of real parties; `messages` attacks
these, `verdicts` says what it comes to, and `run` puts it together.
"""

from fedmmf.audit.exposure import expose
from fedmmf.audit.run import audit

__all__ = ["audit", "expose"]
