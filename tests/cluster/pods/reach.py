"""Tries to connect to addresses, a JSON list of `host:port`, and prints a JSON list of those that were reached.

A connection counts if it is accepted: a network policy drops its packets, or refuses it.
"""

import concurrent.futures
import json
import socket
import sys

addresses = json.loads(sys.argv[1])


def is_reached(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError:
        return False
    return True


with concurrent.futures.ThreadPoolExecutor(len(addresses)) as pool:
    print(
        json.dumps(
            [
                address
                for address, hit in zip(
                    addresses, pool.map(is_reached, addresses), strict=True
                )
                if hit
            ]
        )
    )
