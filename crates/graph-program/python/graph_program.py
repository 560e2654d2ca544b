"""A client for programs that call the tools of a state graph while they run.

A contract with `tool_type: program` names a program and the tools that it may call:

    import graph_program

    def main(inputs):
        calls = [("shop/process", {"item": item}) for item in inputs["items"]]
        results = graph_program.call_all(calls, return_errors=True)
        failed = sum(isinstance(result, graph_program.CallError) for result in results)
        return {"processed": len(results), "failed": failed}

    if __name__ == "__main__":
        graph_program.run(main)

After a crash of the runtime, the program is started again and its earlier calls get the results that they had. So its calls must
follow from its inputs and from the results of its calls, and from nothing else: no time, no random numbers, no files that change.
Threads may call tools, but then nothing says in which order.

This module needs Python 3.9 or later, and nothing else.
"""

import json
import os
import socket
import stat
import sys
import threading

__all__ = ["CallError", "call", "call_all", "run"]

_MOST_CALLS = 256


class CallError(Exception):
    """A call failed, or was refused and not made. The program may continue.

    `code` is that of JSON-RPC: -32000 if the call was made and failed, -32601 if the contract does not list the tool, -32602 if the
    tool has no such parameter.
    """

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code
        self.message = message


class _Connection:
    def __init__(self, stream):
        self._stream = stream
        self._last = 0
        self._lock = threading.Lock()

    def receive(self):
        line = self._stream.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the connection to the graph is broken")
        return json.loads(line)

    def _send(self, message):
        # A line: JSON escapes the newlines in texts. JSON has neither NaN nor infinity.
        self._stream.write(json.dumps(message, allow_nan=False).encode() + b"\n")
        self._stream.flush()

    def _request(self, tool, arguments):
        self._last += 1
        return {"jsonrpc": "2.0", "id": self._last, "method": tool, "params": arguments}

    def call(self, tool, arguments):
        with self._lock:
            request = self._request(tool, arguments)
            self._send(request)
            return self._answer(self.receive(), request["id"])

    def call_all(self, calls):
        answers = []
        with self._lock:
            for begin in range(0, len(calls), _MOST_CALLS):
                batch = [self._request(tool, arguments) for tool, arguments in calls[begin : begin + _MOST_CALLS]]
                self._send(batch)
                # JSON-RPC allows any order.
                responses = {response["id"]: response for response in self.receive()}
                answers += [(responses[request["id"]], request["id"]) for request in batch]
        results = []
        for response, number in answers:
            try:
                results.append(self._answer(response, number))
            except CallError as error:
                results.append(error)
        return results

    @staticmethod
    def _answer(response, number):
        error = response.get("error")
        if error is not None:
            raise CallError(error["code"], error["message"])
        if response["id"] != number:
            raise ConnectionError(f"a response is not that of call {number}")
        return response["result"]


_connection = None


def _connected():
    if _connection is None:
        raise RuntimeError("tools are called inside of `run`, in a program that a graph started")
    return _connection


def call(tool, /, **arguments):
    """Calls a tool that the contract lists, and returns its result. Raises `CallError` if the call failed or was refused."""
    return _connected().call(tool, arguments)


def call_all(calls, return_errors=False):
    """Calls tools concurrently: pairs of an id and a dict of arguments. Returns the results in the order of the calls.

    If a call failed, its `CallError` is raised after all were made; with `return_errors` it is an element of the list instead.
    """
    results = _connected().call_all(list(calls))
    if not return_errors:
        for result in results:
            if isinstance(result, CallError):
                raise result
    return results


def run(main):
    """Runs the program: `main` gets the inputs, and the value that it returns is the result.

    Whatever `main` prints goes to stderr. If it raises, the process exits with 1, and the last line of the traceback becomes the
    message of the failed node.
    """
    global _connection
    if not stat.S_ISSOCK(os.fstat(0).st_mode):
        sys.exit("stdin is no socket: a contract with `tool_type: program` starts this program")
    # Neither the program nor a process that it starts reads or writes these by accident.
    with socket.socket(fileno=os.dup(0)) as connection, os.fdopen(os.dup(1), "w") as output:
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        with connection.makefile("rwb") as stream:
            _connection = _Connection(stream)
            result = main(_connection.receive())
            sys.stdout.flush()
            output.write(json.dumps(result, allow_nan=False) + "\n")
