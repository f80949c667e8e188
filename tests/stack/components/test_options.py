"""Options: in a plan only where a site asks for them, with every package named that they need."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpucheck.knowledge import gpus, tables
from gpucheck.stack.components.dcgm import r23_cuda_majors
from gpucheck.stack.facts import target_of
from gpucheck.stack.types import DriverChoice
from gpucheck.stack.versions import cc


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.sampled_from([gpu.name for gpu in gpus()]), min_size=1, max_size=4),
    st.sampled_from([branch for branch in tables.drivers().branches if branch.last]),
)
def test_the_cuda_majors_run_on_every_gpu_and_none_is_newer_than_the_driver(names, branch):
    """Against what the branch's own row says, and the first capability of CUDA 13."""
    target = target_of(names, "ubuntu-22.04", "x86_64")
    driver = DriverChoice(branch=branch.branch, version=branch.last, kernel_module="open")

    majors = r23_cuda_majors(target, driver) if branch.native_cuda and float(branch.native_cuda) >= 11 else ()

    for gpu in target.models if majors else ():
        assert any(number < 13 or cc(gpu.compute_capability) >= (7, 5) for number in majors)
    assert not majors or majors[0] == int(float(branch.native_cuda))
    assert len(set(majors)) == len(majors)
