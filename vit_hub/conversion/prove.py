"""stub"""
from dataclasses import dataclass
from typing import Any
@dataclass
class Proof:
    record: dict[str, Any]
    @classmethod
    def skipped(cls,*a): return cls({"verdict":"not verified"})
    def raise_if_wrong(self): pass
def prove(*a): return Proof({"verdict":"not verified"})
