"""Learned dispatch and orchestration of KaiS: features of views, and policies that run trained networks."""
