"""The former name of `podwright.client`, for programs that were written for it."""

from podwright.client import AsyncClient as AsyncClient
from podwright.client import AsyncConversation as AsyncConversation
from podwright.client import AsyncRuns as AsyncRuns
from podwright.client import BackgroundRun as BackgroundRun
from podwright.client import Client as Client
from podwright.client import Conversation as Conversation
from podwright.client import Info as Info
from podwright.client import Input as Input
from podwright.client import ListedRun as ListedRun
from podwright.client import MovedRun as MovedRun
from podwright.client import ProblemError as ProblemError
from podwright.client import RunContent as RunContent
from podwright.client import RunOptions as RunOptions
from podwright.client import Runs as Runs
from podwright.client import RunStatus as RunStatus
