"""The record of earlier attempts of a run, from which the next one goes on."""
