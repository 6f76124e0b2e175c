"""Learning to dispatch: an environment over the engine, a trainer, and export to ONNX.

env         one window of a run is one step of a Gymnasium environment
networks    ASET's network, and one that fits any number of workers
dqn         the trainer, to be read from top to bottom
export      a trained network becomes an ONNX file and its card

The only place that imports torch. Running a trained policy needs none of this.
"""
