"""Tools: functions that a model may call, their schemas, arguments and changes."""
