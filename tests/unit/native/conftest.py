"""Native kernels under test, on every instruction set of this processor."""

import pytest

native = pytest.importorskip("freehold._native", reason="the native extension is not built: make native")


@pytest.fixture(params=native.available_isas())
def isa(request: pytest.FixtureRequest) -> str:
    return request.param
