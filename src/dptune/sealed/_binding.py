"""How a release is bound to its charge: the charge names a public key, the release carries that key's one signature.

The charge is made before training, when neither parameters nor model are known; a second entry at the end would tell
by its time and place how long the run took. So the run draws a one-time key (``_signature.py``) from its secret, puts
the public half into the charge, and signs digests of every field and file of the release. The secret is destroyed
with the release: nobody can sign another one afterwards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from dptune.ledgers import Purpose
from dptune.methods.plan import Plan
from dptune.randomness import Randomness
from dptune.sealed._signature import SCHEME, Signer, verifies

__all__ = ["digest_of", "file_digest", "plan_file", "purpose_of", "seal_release", "sealed_by", "signer_of"]


def signer_of(randomness: Randomness, run: str) -> Signer:
    """The run's one-time key; the same whenever the run is continued."""
    identifier = hashlib.blake2b(run.encode(), digest_size=16, person=b"dptune release").digest()
    return Signer(randomness.child("signature of the release").secret(), identifier)


def plan_file(plan: Plan) -> bytes:
    """The content of ``plan.json``."""
    return (plan.to_json() + "\n").encode()


def purpose_of(plan: Plan, signer: Signer) -> Purpose:
    """What the charge says about the run."""
    return Purpose(plan.method, plan.price(), plan.budget.delta, file_digest(plan_file(plan)), signer.public)


def file_digest(content: bytes) -> str:
    """The SHA-256 of a file, as in ``release.json``."""
    return hashlib.sha256(content).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def digest_of(value: Any) -> str:
    """The SHA-256 of a value of JSON, however it was written."""
    return hashlib.sha256(_canonical(value)).hexdigest()


def _message(fields: Mapping[str, str], files: Mapping[str, str]) -> bytes:
    return b"dptune release\n" + _canonical({"fields": dict(fields), "files": dict(files)})


def seal_release(details: Mapping[str, Any], files: Mapping[str, bytes], signer: Signer) -> dict[str, Any]:
    """The field ``seal`` of a ``release.json`` with these fields, beside these files."""
    fields = {name: digest_of(value) for name, value in details.items()}
    digests = {name: file_digest(content) for name, content in files.items()}
    signature = signer.sign(_message(fields, digests))
    return {"scheme": SCHEME, "fields": fields, "files": digests, "signature": signature}


def sealed_by(seal: Any, public: str) -> bool:
    """Whether the digests in a seal were signed by the run with this public key."""
    try:
        message = _message(seal["fields"], seal["files"])
        return seal["scheme"] == SCHEME and verifies(public, message, seal["signature"])
    except (KeyError, TypeError, ValueError):
        return False
