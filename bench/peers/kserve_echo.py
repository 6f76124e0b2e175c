"""An echo model for KServe, as its documents write a custom predictor. Runs in KServe's environment."""

import logging
import sys

from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer


class Echo(Model):
    """Answers with its inputs, in binary where that is asked for."""

    def __init__(self) -> None:
        super().__init__("echo")
        self.ready = True

    def load(self) -> bool:
        """Nothing to load."""
        return True

    async def predict(self, payload: InferRequest, headers=None, response_headers=None) -> InferResponse:
        """Copy; JSON goes through undecoded."""
        outputs = []
        for x in payload.inputs:
            output = InferOutput(x.name, x.shape, x.datatype, None if payload.use_binary_outputs else x.data)
            if payload.use_binary_outputs:
                output.set_data_from_numpy(x.as_numpy(), binary_data=True)
            outputs.append(output)
        return InferResponse(payload.id, self.name, outputs, use_binary_outputs=payload.use_binary_outputs)


if __name__ == "__main__":
    logging.disable(logging.INFO)
    server = ModelServer(
        http_port=int(sys.argv[1]), enable_grpc=False, workers=1, access_log_format=None,
        enable_latency_logging=False,
    )  # fmt: skip
    server.start([Echo()])
