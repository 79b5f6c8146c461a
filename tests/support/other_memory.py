"""The CPU as a device whose memory is not the host's."""

from __future__ import annotations

from specdec.engines import Device


class OtherMemory(Device):
    """Equal to no `Device`: buffers of its own are made for it, and ONNX Runtime copies."""
