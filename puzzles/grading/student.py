"""Who handed in a submission, and when."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Student:
    """A student, or a group with its members; what is not known is empty."""

    name: str = ""
    id: str = ""
    email: str = ""
    section: str = ""
    group: str = ""
    others: tuple[str, ...] = ()
    """Further identifiers: a login, an id in another system."""
    members: tuple[Student, ...] = ()
    """Of a group."""
    submitted: float | None = None
    """Seconds since 1970; None if that is not known."""
    row: dict[str, str] = field(default_factory=dict, compare=False)
    """The roster's row, by its own headings."""

    @property
    def identifiers(self) -> tuple[str, ...]:
        """Everything that means nobody else."""
        return tuple(filter(None, (self.id, self.email, *self.others)))

    @property
    def people(self) -> tuple[Student, ...]:
        """The members of a group, or the student."""
        return self.members or (self,)
