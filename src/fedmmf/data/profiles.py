"""User profiles, such as age, gender and occupation: one row per user code.

A profile is private: in a federation it stays with its user, as the ratings do. Inside one party it
is a constant, so no mask uses it; models that all users share may.
"""

from typing import ClassVar

from fedmmf.data.attributes import Attributes


class UserProfiles(Attributes):
    """Named columns of the users, finite and read-only.

    Attributes:
        names: One distinct name per column.
        values: (n_users, n_columns) float32; row u belongs to user code u.
    """

    kind: ClassVar[str] = "user"
    title: ClassVar[str] = "Profiles"
    labels: ClassVar[tuple[str, ...]] = ("name",)
