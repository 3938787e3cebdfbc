"""The server: uvicorn in one process, or gunicorn with several."""
