"""A method's handler with another function in it, for interceptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

_HANDLERS: dict[tuple[bool, bool], Callable[..., grpc.RpcMethodHandler[Any, Any]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def function_of(handler: grpc.RpcMethodHandler[Any, Any]) -> Callable[..., Any]:
    """Return the function that answers the method's calls."""
    function = (
        handler.stream_stream or handler.unary_stream or handler.stream_unary or handler.unary_unary
    )
    assert function is not None  # noqa: S101 - every handler has one
    return function


def replaced(
    handler: grpc.RpcMethodHandler[Any, Any], function: Callable[..., Any]
) -> grpc.RpcMethodHandler[Any, Any]:
    """Return the same handler with `function` in it."""
    make = _HANDLERS[handler.request_streaming, handler.response_streaming]
    return make(function, handler.request_deserializer, handler.response_serializer)
