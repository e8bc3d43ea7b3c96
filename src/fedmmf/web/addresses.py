"""Which addresses stay on this machine."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a host, by name or number and without a port, is this machine and nothing else."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
