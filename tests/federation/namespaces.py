"""Several hosts on one machine: a network namespace for each, joined by a bridge."""

import os
import shutil
import subprocess
from contextlib import contextmanager

IP = shutil.which("ip") or ""


def can_make_them():
    """Whether this process may make namespaces; an empty text, or why not."""
    if not IP:
        return "iproute2 is not installed"
    if os.geteuid() != 0:
        return "only root can make network namespaces"
    name = f"fm{os.getpid()}-try"  # tests run in several processes
    tried = subprocess.run([IP, "netns", "add", name], capture_output=True, text=True)
    if tried.returncode:
        return f"this machine makes no network namespaces: {tried.stderr.strip()}"
    subprocess.run([IP, "netns", "delete", name], check=True)
    return ""


def ip(*words):
    subprocess.run([IP, *words], check=True, capture_output=True, text=True)


class Hosts:
    """Namespaces by machine, with addresses 10.77.0.1, .2, ...; each has a link to one bridge."""

    def __init__(self, machines):
        mark = f"fm{os.getpid()}"
        self.switch = f"{mark}-sw"
        self.names = {machine: f"{mark}-{machine}" for machine in machines}
        self.addresses = {m: f"10.77.0.{n}" for n, m in enumerate(machines, start=1)}

    def make(self):
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for number, (machine, space) in enumerate(self.names.items()):
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
            peer = ("peer", "name", f"p{number}", "netns", self.switch)
            ip("-n", space, "link", "add", "eth0", "type", "veth", *peer)
            ip("-n", space, "address", "add", f"{self.addresses[machine]}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", self.switch, "link", "set", f"p{number}", "master", "bridge", "up")

    def cut(self, machine):
        """Take a cable out; nobody is told."""
        ip("-n", self.switch, "link", "set", f"p{list(self.names).index(machine)}", "down")

    def heal(self, machine):
        ip("-n", self.switch, "link", "set", f"p{list(self.names).index(machine)}", "up")

    def can_disturb(self):
        """Whether this machine's kernel has netem."""
        words = ["tc", "-n", self.switch, "qdisc", "replace", "dev", "p0", "root", "netem", "delay"]
        return subprocess.run([*words, "1ms"], capture_output=True).returncode == 0

    def disturb(self, machine, *what):
        """Let packets be late, lost, doubled or out of order, as `tc netem` has it."""
        port = f"p{list(self.names).index(machine)}"
        words = ["tc", "-n", self.switch, "qdisc", "replace", "dev", port, "root", "netem", *what]
        subprocess.run(words, check=True, capture_output=True)

    def remove(self):
        for space in (*self.names.values(), self.switch):
            subprocess.run([IP, "netns", "delete", space], capture_output=True)


@contextmanager
def hosts(*machines):
    made = Hosts(machines)
    try:
        made.make()
        yield made
    finally:
        made.remove()
