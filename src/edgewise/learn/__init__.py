"""Learning: environments over the simulators, trainers, and export to ONNX.

env         one window of a run of streams is one step of a Gymnasium environment
networks    ASET's network, and one that fits any number of workers
dqn         ASET's trainer, to be read from top to bottom
export      a trained network becomes an ONNX file and its card
defer       the same for deferrable jobs (OSDEC)

The only place that imports torch. Running a trained policy needs none of this.
"""
