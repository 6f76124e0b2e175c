"""A conformance suite for endpoint pickers: the data plane's side of the endpoint picker protocol.

The protocol is docs/proposals/004-endpoint-picker-protocol of the Gateway API Inference Extension,
v1.0.0, on top of Envoy's external processing service. The suite plays the data plane: it sends the
messages that a proxy sends, and judges what the picker under test answers.
"""

from picker_conformance.suite import Case, Level, Outcome, Result, run

__all__ = ["Case", "Level", "Outcome", "Result", "run"]
