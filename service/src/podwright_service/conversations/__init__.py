"""Conversations that the service keeps: the turns of a session, one after the other, and who may begin the next one.

A turn takes a place in the queue of its conversation when it is asked for, begins when those before it have ended, and
adds its messages when its run has succeeded. Any other end of it leaves the conversation as it was.
"""
