"""Learning when to start deferrable jobs (OSDEC and its variants).

env       one slot is one step of a Gymnasium environment
networks  attention, fixed-length and pointer networks; the auxiliary module
ppo       the trainer, to be read from top to bottom
export    a trained network becomes an ONNX file and its card, and is loaded from them

Running a trained policy needs onnxruntime, not torch.
"""
