"""An echo model for MLServer, as its documents write a custom runtime. Runs in MLServer's environment."""

import asyncio
import logging
import sys

from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Echo(MLModel):
    """Answers with its inputs, without decoding them."""

    async def load(self) -> bool:
        """Nothing to load."""
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Copy."""
        outputs = [
            ResponseOutput(name=x.name, shape=x.shape, datatype=x.datatype, data=x.data)
            for x in payload.inputs
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)


async def main(port: int) -> None:
    """Serve in one process (parallel_workers=0)."""
    settings = Settings(
        debug=False, parallel_workers=0, host="127.0.0.1", http_port=port, grpc_port=0, metrics_endpoint=None
    )
    server = MLServer(settings)
    logging.disable(logging.INFO)
    await server.start([ModelSettings(name="echo", implementation=Echo)])


if __name__ == "__main__":
    try:
        import uvloop

        uvloop.install()
    except ImportError:
        pass
    asyncio.run(main(int(sys.argv[1])))
