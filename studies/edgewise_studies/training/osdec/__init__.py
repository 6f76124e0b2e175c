"""Learning when to start deferrable jobs (OSDEC and its variants).

networks    attention, fixed-length and pointer networks; the auxiliary module
agent       switches of the variants, the agent, what is exported
ppo         the trainer, to be read from top to bottom
situations  what is trained on
"""
