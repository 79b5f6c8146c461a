"""What a deployment on Ray is told: by the `args` of its YAML file, or by the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from specdec.runtime.errors import InvalidParameterError
from specdec.runtime.serving.batch_decoder import BatchDecoder
from specdec.runtime.serving.http.settings import ServerSettings, read_keys

__all__ = ["RaySettings"]

_PREFIX = "SPECDEC_"


class RaySettings(BaseModel):
    """One package on any number of replicas; sizes are those of a replica."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    package: Path
    """Its directory, at the same place on every node."""
    model: str | None = None
    """Name of the model; the directory's if None."""
    num_slots: int = Field(4, ge=1, le=256)
    max_queue: int = Field(256, ge=1)
    """Requests that wait for a replica; more are answered 429."""
    prefill_chunk: int = Field(128, ge=1, le=4096)
    drafter: Literal["auto", "model", "ngram", "hybrid", "none"] = "auto"
    device: str = "cpu"
    num_cpus: float = Field(2.0, ge=0)
    """CPUs that Ray sets aside; the engine takes as many threads."""
    num_gpus: float = Field(0.0, ge=0)
    min_replicas: int = Field(1, ge=1)
    max_replicas: int = Field(1, ge=1)
    """More replicas start while more than `num_slots` requests are in each."""
    grace_seconds: float = Field(60.0, ge=0)
    """How long a replica that is replaced may finish what it has begun."""
    max_body_bytes: int = 2_000_000
    max_seconds: float = 600.0
    api_key_file: Path | None = None
    """One key a line, at the same place on every node."""

    @classmethod
    def read(cls, arguments: Mapping[str, Any]) -> RaySettings:
        """From arguments, and where one is absent from `SPECDEC_` and its name in capitals.

        Raises:
            InvalidParameterError: one is unknown, missing or out of range.
        """
        values = {
            name: os.environ[_PREFIX + name.upper()]
            for name in cls.model_fields
            if _PREFIX + name.upper() in os.environ
        }
        try:
            settings = cls.model_validate(values | dict(arguments))
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            name = ".".join(map(str, fault["loc"]))
            raise InvalidParameterError(
                f"{name}: {fault['msg']}; allowed are {', '.join(cls.model_fields)}, as args of "
                f"the deployment or as {_PREFIX}PACKAGE and so on in the environment"
            ) from None
        if settings.max_replicas < settings.min_replicas:
            raise InvalidParameterError(
                f"max_replicas is {settings.max_replicas}; allowed is min_replicas, "
                f"{settings.min_replicas}, or more"
            )
        return settings

    def server(self) -> ServerSettings:
        """The limits and rights of the server in each replica."""
        return ServerSettings(
            model=self.model or self.package.resolve().name,
            api_keys=frozenset() if self.api_key_file is None else read_keys(self.api_key_file),
            max_body_bytes=self.max_body_bytes,
            max_seconds=self.max_seconds,
        )

    def load(self) -> BatchDecoder:
        """The decoder of a replica; errors as `BatchDecoder.load`."""
        return BatchDecoder.load(
            self.package,
            num_slots=self.num_slots,
            device=self.device,
            num_threads=max(int(self.num_cpus), 1),
            drafter=self.drafter,
            max_queue=self.max_queue,
            prefill_chunk=self.prefill_chunk,
        )
