"""Deployments on Flower: the app that is sent, certificates and keys, and a whole federation on this machine."""
