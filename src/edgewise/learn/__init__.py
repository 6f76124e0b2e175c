"""Learning: environments over the simulators, trainers, and one harness under all of them.

env            one window of a run of streams is one step of a Gymnasium environment
joint          environments of what several agents decide at once: Gymnasium, vectors, PettingZoo
games          what they play: dispatch of requests, orchestrate, defer, split, place
harness        rounds, saving and going on, TensorBoard, validation, the card
card           writes what `edgewise.policies.cards` reads: JSON, and ONNX beside it
methods        what `edgewise train` trains, by name
dqn            ASET's trainer, to be read from top to bottom; networks, replay

The only place of edgewise that imports torch; trainers of papers are in `studies`.
Running a trained policy needs none of this.
"""
