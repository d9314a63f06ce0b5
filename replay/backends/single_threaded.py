"""A bidirectional streaming call without a thread, made of private parts of gRPC.

gRPC has single-threaded calls with one request (`grpc.experimental.ChannelOptions`,
SingleThreadedUnaryStream). Their parts can make a bidirectional streaming call, too. They are not a
public interface, so that only duplex.py imports this module, with the versions of gRPC that were
tested.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import grpc
from grpc import _channel
from grpc._cython import cygrpc  # type: ignore[attr-defined] # private, and not in the stubs

_SEND = cygrpc.OperationType.send_message
_RECEIVE = cygrpc.OperationType.receive_message
_NO_FLAGS = 0


def is_of_grpc(method: Any) -> bool:
    """Return whether a bidirectional streaming method was made by a gRPC channel."""
    return isinstance(method, _channel._StreamStreamMultiCallable)


class SingleThreadedDuplex(_channel._SingleThreadedRendezvous):
    """A call that its caller's thread writes and reads; `cancel` may be called by any thread.

    `due` of gRPC's state holds the operations that were begun and have not completed; each kind can
    be begun once at a time.
    """

    def __init__(self, method: Any) -> None:
        """Begin a call of a bidirectional streaming method that a gRPC channel has made."""
        state = _channel._RPCState(_channel._STREAM_STREAM_INITIAL_DUE, None, None, None, None)
        state.method, state.target = method._method.decode(), method._target.decode()
        begin = (
            cygrpc.SendInitialMetadataOperation((), _NO_FLAGS),
            cygrpc.ReceiveStatusOnClientOperation(_NO_FLAGS),
        )
        call = method._channel.segregated_call(
            cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
            method._method,
            None,
            None,
            (),
            None,
            ((begin, None), ((cygrpc.ReceiveInitialMetadataOperation(_NO_FLAGS),), None)),
            method._context,
            method._registered_call_handle,
        )
        super().__init__(state, call, method._response_deserializer, None)
        self._serialize = method._request_serializer
        self._responses: deque[Any] = deque()

    def write(self, request: Any) -> None:
        """Send a request; where the call has failed, the next response raises."""
        data = self._serialize(request)
        while _SEND in self._state.due:  # Responses are read meanwhile, else both ends could wait.
            self._step()
        self._operate(_SEND, cygrpc.SendMessageOperation(data, _NO_FLAGS))

    def close(self) -> None:
        """End the call, and free what gRPC keeps for its events."""
        self.cancel()
        while self._state.due:
            self._consume_next_event()

    def _next(self) -> Any:
        while not self._responses:
            if self._state.code is not None and _RECEIVE not in self._state.due:
                if self._state.code is grpc.StatusCode.OK:
                    raise StopIteration
                raise self
            self._step()
        return self._responses.popleft()

    def _step(self) -> None:
        """Wait for the next event; keep the response that it may have."""
        if _RECEIVE not in self._state.due:
            self._operate(_RECEIVE, cygrpc.ReceiveMessageOperation(_NO_FLAGS))
        self._consume_next_event()
        if self._state.response is not None:
            self._responses.append(self._state.response)
            self._state.response = None

    def _operate(self, kind: int, operation: Any) -> None:
        """Begin an operation, unless the call has ended."""
        with self._state.condition:
            if self._state.code is None:
                self._state.due.add(kind)
                if not self._call.operate((operation,), None):
                    self._state.due.remove(kind)
