"""The owner of a process, by its cgroup and the kubelet's log directories; jobs by the mapping directory."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.exporter.cgroup_node import FLAT, ID, OUTER, STATIC, UID, Node
from tests.support.exporter.gpus import GPU_0, GPU_1, INSTANCE

from kernelcast.exporter.attribution import Attribution
from kernelcast.exporter.attribution.assembly import CurrentUsers
from kernelcast.exporter.attribution.attribution import SOURCES
from kernelcast.exporter.attribution.cgroup import CgroupMembership, parse, sees_host_pids
from kernelcast.exporter.attribution.environment import JobEnvironments, job_in
from kernelcast.exporter.attribution.jobs import MAX_JOBS, JobDirectory
from kernelcast.exporter.attribution.pod_resources import Container
from kernelcast.exporter.attribution.pods import agreed
from kernelcast.exporter.background_value import Refreshed, RefreshPolicy
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.settings.service import load


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice/cri-containerd-{ID}.scope",
            CgroupMembership(UID, ID),
        ),
        (f"/kubepods.slice/kubepods-pod{FLAT}.slice/crio-{ID}.scope/container", CgroupMembership(UID, ID)),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{FLAT}.slice/docker-{ID}.scope",
            CgroupMembership(UID, ID),
        ),
        (f"/kubepods/burstable/pod{UID}/{ID}", CgroupMembership(UID, ID)),
        (
            f"/system.slice/containerd.service/kubepods-burstable-pod{FLAT}.slice:cri-containerd:{ID}",
            CgroupMembership(UID, ID),
        ),
        (
            f"/docker/{OUTER}/kubelet.slice/kubelet-kubepods-pod{FLAT}.slice/cri-containerd-{ID}.scope",
            CgroupMembership(UID, ID),
        ),
        (f"/../../kubepods-pod{STATIC}.slice/cri-containerd-{ID}.scope", CgroupMembership(STATIC, ID)),
        (f"/docker/{ID}", CgroupMembership("", ID)),
        (f"/system.slice/docker-{ID}.scope", CgroupMembership("", ID)),
        (f"/machine.slice/libpod-{ID}.scope", CgroupMembership("", ID)),
        ("/slurm/uid_1000/job_4242/step_0/task_0", CgroupMembership("", "", "4242")),
        ("/system.slice/slurmstepd.scope/job_77/step_batch/user/task_0", CgroupMembership("", "", "77")),
        ("/system.slice/node7_slurmstepd.scope/job_78", CgroupMembership("", "", "78")),
        # PBS: openpbs/openpbs, tests of pbs_cgroups; the v2 form is that of a public PBS exporter.
        ("/pbs_jobs.service/jobid/2404743.opbs", CgroupMembership("", "", "2404743")),
        ("/pbs_jobs.service/jobid/12345[1].pbs/child", CgroupMembership("", "", "12345[1]")),
        ("/pbs_jobs.service/jobs/12345.1", CgroupMembership("", "", "12345")),
        # LSF: ceems-dev/ceems, lsf_test.go.
        ("/lsf/cluster1/job.19.12345.123443", CgroupMembership("", "", "19")),
        ("/lsf/cluster1/job.19[2].12345.123443", CgroupMembership("", "", "19[2]")),
        # Flux: flux-framework/flux-core, issue 6501.
        (
            "/user.slice/user-765.slice/user@765.service/imp-shell-450-fPY66riwfnP.service",
            CgroupMembership("", "", "fPY66riwfnP"),
        ),
        # HTCondor's manual, "cgroup-based process tracking": no job's id.
        ("/htcondor/condor_var_lib_condor_execute_slot1", CgroupMembership()),
        # Amazon ECS: DataDog/dd-trace-dotnet, 1286, and the container of signalfx/signalfx-nodejs, issue 109.
        (
            "/ecs/55091c13-b8cf-4801-b527-f4601742204d/432624d2150b349fe35ba397284dea788c2bf66b885d14dfc1569b01890ca7da",
            CgroupMembership(
                "",
                "432624d2150b349fe35ba397284dea788c2bf66b885d14dfc1569b01890ca7da",
                "55091c13-b8cf-4801-b527-f4601742204d",
            ),
        ),
        (
            "/ecs/cd189a933e5849daa93386466019ab50/cd189a933e5849daa93386466019ab50-2495160603",
            CgroupMembership("", "cd189a933e5849daa93386466019ab50-2495160603", "cd189a933e5849daa93386466019ab50"),
        ),
        ("/lsf/of-mine/job.txt", CgroupMembership()),
        ("/user.slice/user-1000.slice/session-3.scope", CgroupMembership()),
        ("/podman/pod-of-mine", CgroupMembership()),
        ("/", CgroupMembership()),
    ],
)
@pytest.mark.parametrize("form", ["0::{}\n", "12:devices:{}\n11:memory:{}\n1:name=systemd:{}\n0::/\n"])
def test_every_form_of_cgroup_has_pod_container_and_job(path: str, expected: CgroupMembership, form: str) -> None:
    assert parse(form.replace("{}", path).encode()) == expected


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_two_pods_on_one_gpu_each_own_their_processes(node: Node) -> None:
    node.log_of("train-0", "ml", "torch", ID)
    node.log_of("serve-0", "web", "vllm", OUTER, uid=STATIC)
    node.process(7, f"/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{ID}.scope")
    node.process(8, f"/kubepods.slice/kubepods-pod{STATIC}.slice/cri-containerd-{OUTER}.scope")
    assert node.labels(7) == {"pod": "train-0", "namespace": "ml", "container": "torch"}
    assert node.labels(8) == {"pod": "serve-0", "namespace": "web", "container": "vllm"}


def test_without_the_container_logs_the_pod_is_still_known(node: Node) -> None:
    node.log_of("train-0", "ml", "torch")
    node.process(7, f"/kubepods/burstable/pod{UID}/{ID}")
    assert node.labels(7) == {"pod": "train-0", "namespace": "ml"}


def test_a_pod_whose_name_is_not_known_has_no_labels_rather_than_wrong_ones(node: Node) -> None:
    node.process(7, f"/kubepods/burstable/pod{UID}/{ID}")
    assert node.labels(7) == {}
    node.log_of("train-0", "ml", "torch", ID)
    assert node.labels(7)["pod"] == "train-0", "and it is looked for again"


def test_the_uid_of_a_pod_is_a_label_where_it_is_wanted(node: Node) -> None:
    node.log_of("train-0", "ml", "torch", ID)
    node.process(7, f"/kubepods/burstable/pod{UID}/{ID}")
    known = {"pod": "train-0", "namespace": "ml", "container": "torch"}
    assert node.labels(7) == known
    node.attribution = Attribution(replace(node.settings, pod_uids=True), on_error=node.errors.append)
    assert node.labels(7) == {**known, "pod_uid": UID}
    container = Container("ml", "train-0", "torch")
    assert node.attribution._labels_of_container(container) == {**known, "pod_uid": UID}, "of a GPU's series"
    node.log_of("train-0", "ml", "torch", uid=STATIC)
    node.attribution.refresh()
    assert node.attribution._labels_of_container(container) == known, "made anew under its name: one of two"
    assert node.labels(7) == {**known, "pod_uid": UID}, "a process has its own pod's"


def test_outside_of_containers_the_user_and_the_slurm_job_are_known(node: Node) -> None:
    node.process(7, "/slurm/uid_1000/job_4242/step_0")
    assert node.labels(7) == {"hpc_job": "4242", "user": "someone"}


def test_a_fargate_container_has_its_whole_name_since_its_beginning_is_the_tasks(node: Node) -> None:
    task = "cd189a933e5849daa93386466019ab50"
    node.process(7, f"/ecs/{task}/{task}-2495160603")
    assert node.labels(7) == {"hpc_job": task, "container": f"{task}-2495160603"}


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({"LSB_JOBID": "42", "LSB_JOBINDEX": "0"}, "42"),
        ({"LSB_JOBID": "42", "LSB_JOBINDEX": "7"}, "42[7]"),
        ({"PBS_JOBID": "2404743.opbs"}, "2404743"),
        ({"PBS_JOBID": "12345[1].pbs"}, "12345[1]"),
        ({"FLUX_JOB_ID": "ƒPY66riwfnP"}, "ƒPY66riwfnP"),
        ({"SLURM_JOB_ID": "4242", "PBS_JOBID": "1"}, "4242"),
        ({"LSB_JOBID": "<script>"}, ""),
        ({"_CONDOR_SLOT": "slot1_1"}, ""),
        ({}, ""),
    ],
)
def test_the_environment_has_the_job_where_the_cgroup_has_none(variables: dict[str, str], job: str, node: Node) -> None:
    node.process(7, "/system.slice/lsfd.service")
    content = "\0".join(("PATH=/bin", "broken", *(f"{name}={value}" for name, value in variables.items()), ""))
    (node.root / "proc" / "7" / "environ").write_text(content)
    assert node.labels(7) == {"user": "someone"}, "it is read on another thread"
    assert node.labels(7) == ({"hpc_job": job, "user": "someone"} if job else {"user": "someone"})


def test_an_environment_is_read_once_for_each_process_and_one_that_may_not_be_read_says_nothing(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "7"
    directory.mkdir()
    (directory / "environ").write_text("PBS_JOBID=1.server\0")
    reader = JobEnvironments(tmp_path)
    assert reader.job_of(7, reader.read()) is None, "not known yet"
    assert reader.job_of(7, reader.read()) == "1"
    (directory / "environ").write_text("PBS_JOBID=2.server\0")
    os.utime(directory, ns=(1, 1))
    assert reader.job_of(7, reader.read()) is None, "another process has the pid"
    assert reader.job_of(7, reader.read()) == "2"
    (directory / "environ").write_text("PBS_JOBID=3.server\0")
    os.utime(directory, ns=(1, 1))
    assert reader.job_of(7, reader.read()) == "2", "the same process"
    (tmp_path / "8").mkdir()
    reader.job_of(8, {})
    assert reader.job_of(8, reader.read()) == ""
    assert reader.job_of(9, reader.read()) == "", "it has ended"


def test_htcondors_job_is_in_the_file_that_the_environment_names(node: Node) -> None:
    node.process(7, "/htcondor/condor_var_lib_condor_execute_slot1")
    process = node.root / "proc" / "7"
    (process / "root" / "scratch").mkdir(parents=True)
    (process / "environ").write_text("_CONDOR_SLOT=slot1\0_CONDOR_JOB_AD=/scratch/.job.ad\0")
    ad = process / "root" / "scratch" / ".job.ad"
    ad.write_text('Cmd = "train.sh"\nClusterId = 4711\nProcId = 3\nOwner = "someone"\n')
    node.labels(7)
    assert node.labels(7) == {"hpc_job": "4711.3", "user": "someone"}


@pytest.mark.parametrize("kind", ["absent", "pipe", "link", "directory", "relative", "one number"])
def test_a_file_of_htcondor_that_is_none_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "7" / "root"
    root.mkdir(parents=True)
    (root / "whole").write_text("ClusterId = 1\nProcId = 0\n")
    path = root / "ad"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(root / "whole")
    elif kind == "directory":
        path.mkdir()
    elif kind == "one number":
        path.write_text("ClusterId = 1\n")
    name = "whole" if kind == "relative" else "/ad"
    (tmp_path / "7" / "environ").write_text(f"_CONDOR_JOB_AD={name}\0")
    reader = JobEnvironments(tmp_path)
    reader.job_of(7, {})
    assert reader.job_of(7, reader.read()) == ""


def test_the_environment_of_a_process_of_this_user_is_readable() -> None:
    reader = JobEnvironments()
    reader.job_of(os.getpid(), {})
    assert reader.job_of(os.getpid(), reader.read()) == job_in(os.environ)


def test_a_user_whom_the_node_does_not_list_is_shown_by_number(node: Node) -> None:
    (node.root / "passwd").write_text("root:x:123456:0::/:/bin/sh\n")
    node.process(7, "/user.slice")
    assert node.labels(7) == {"user": f"uid:{os.getuid()}"}


def test_a_docker_container_is_named_by_its_short_id(node: Node) -> None:
    node.process(7, f"/system.slice/docker-{ID}.scope")
    assert node.labels(7) == {"container": ID[:12]}


def test_a_process_that_has_ended_has_no_labels(node: Node) -> None:
    assert node.labels(7) == {}
    assert node.errors == []


def test_in_another_pid_namespace_nvmls_pids_are_unknown_and_the_sockets_are_known(node: Node) -> None:
    node.process(7, f"/system.slice/docker-{ID}.scope")
    apart = Attribution(replace(node.settings, host_pids=False), on_error=node.errors.append)
    assert apart.process_labels(GPU_0, 7) == {}
    assert apart.labels_of_pid(GPU_0, 7) == {"container": ID[:12]}


def test_the_hosts_pid_namespace_is_recognised_by_its_number(tmp_path: Path) -> None:
    assert not sees_host_pids(tmp_path)
    (tmp_path / "self" / "ns").mkdir(parents=True)
    (tmp_path / "self" / "ns" / "pid").touch()
    assert not sees_host_pids(tmp_path)


def test_each_job_of_a_gpu_is_a_label_set_and_instances_have_files_of_their_own(tmp_path: Path) -> None:
    node = Node(tmp_path, jobs=True)
    (node.jobs / "0").write_text("1001\n 1002 \n\n1001\n")
    (node.jobs / "0.3").write_text("2001")
    (node.jobs / "README").write_text("not a GPU")
    (node.jobs / "1").mkdir()
    node.attribution.refresh()
    users = node.attribution
    assert users.labels_for(GPU_0) == ({"hpc_job": "1001"}, {"hpc_job": "1002"})
    assert users.labels_for(INSTANCE) == ({"hpc_job": "2001"},)
    assert users.labels_for(GPU_1) == ({},)
    assert node.errors == []


def test_a_process_has_the_gpus_job_only_where_there_is_but_one(tmp_path: Path) -> None:
    node = Node(tmp_path, jobs=True)
    node.process(7, "/user.slice")
    (node.jobs / "0").write_text("1001\n")
    assert node.labels(7)["hpc_job"] == "1001"
    (node.jobs / "0").write_text("1001\n1002\n")
    assert "hpc_job" not in node.labels(7)


def test_job_files_are_read_again_when_they_change_and_not_otherwise(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path, on_bad=lambda: pytest.fail("nothing is wrong"))
    (tmp_path / "0").write_text("1\n")
    assert (directory.jobs(), directory.jobs(), directory.reads) == ({"0": ("1",)}, {"0": ("1",)}, 1)
    (tmp_path / "0").write_text("12\n")
    assert (directory.jobs(), directory.reads) == ({"0": ("12",)}, 2)
    (tmp_path / "0").unlink()
    assert directory.jobs() == {}


def test_a_file_that_is_no_list_of_jobs_is_counted_once_and_affects_no_other_jobs(tmp_path: Path) -> None:
    node = Node(tmp_path, jobs=True)
    (node.jobs / "0").write_text("".join(f"{job}\n" for job in range(MAX_JOBS + 1)))
    (node.jobs / "1").write_text("5\n")
    node.attribution.refresh()
    node.attribution.refresh()
    assert node.errors == ["jobs"]
    assert node.attribution.labels_for(GPU_0) == ({},)
    assert node.attribution.labels_for(GPU_1) == ({"hpc_job": "5"},)


def test_a_missing_job_directory_is_counted(tmp_path: Path) -> None:
    node = Node(tmp_path, jobs=True)
    node.jobs.rmdir()
    node.attribution.refresh()
    assert node.errors == ["jobs"]


def test_an_answer_is_used_until_it_is_too_old() -> None:
    now = [100.0]
    answers: list[str | Exception] = ["pods", OSError("gone"), OSError("gone")]

    def fetch() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    errors: list[str] = []
    pace = RefreshPolicy(10.0, 60.0, lambda: now[0])
    value: Refreshed[str] = Refreshed("kubelet", fetch, "", pace=pace, on_error=errors.append)
    assert (value.value, value.age_seconds) == ("", None)
    value.refresh()
    now[0] += 60.0
    value.refresh()
    assert (value.value, value.age_seconds, errors) == ("pods", 60.0, ["kubelet"])
    now[0] += 0.5
    value.refresh()
    assert (value.value, value.age_seconds, len(errors)) == ("", 60.5, 2)


def test_a_stop_between_two_fetches_ends_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []
    pace = RefreshPolicy(3600.0, 3600.0)
    value: Refreshed[str] = Refreshed("kubelet", lambda: fetched.append("pods"), "", pace=pace, on_error=fetched.append)
    clear = value._asked.clear

    def stopped_before() -> None:
        value.close()
        clear()

    monkeypatch.setattr(value._asked, "clear", stopped_before)
    thread = threading.Thread(target=value._run, daemon=True)
    thread.start()
    thread.join(2.0)
    assert (thread.is_alive(), fetched) == (False, [])


def test_the_first_of_two_names_of_a_user_is_shown_as_by_the_system(node: Node) -> None:
    uid = os.getuid()
    (node.root / "passwd").write_text(f"ana:x:{uid}:0::/:/bin/sh\nalias:x:{uid}:0::/:/bin/sh\n")
    node.process(7, "/user.slice")
    assert node.labels(7) == {"user": "ana"}


def test_several_users_have_only_their_common_labels() -> None:
    assert agreed([]) == {}
    assert agreed([{"pod": "a", "namespace": "n"}]) == {"pod": "a", "namespace": "n"}
    assert agreed([{"pod": "a", "namespace": "n"}, {"pod": "b", "namespace": "n", "vgpu": "1"}]) == {"namespace": "n"}


def test_the_daemons_own_metrics_tell_errors_from_zero_and_ages_once_there_is_an_answer(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    registry = CollectorRegistry()
    flags = {"job_mapping_directory": tmp_path / "jobs", "pod_resources_socket": tmp_path / "none.sock"}
    made = CurrentUsers(load("exporter", ExporterSettings, path=None, flags=flags, environ={}), registry)
    errors = "kernelcast_exporter_attribution_errors_total"
    age = "kernelcast_exporter_attribution_age_seconds"
    assert [registry.get_sample_value(errors, {"source": source}) for source in SOURCES] == [0] * len(SOURCES)
    assert registry.get_sample_value(age, {"source": "jobs"}) is None
    made.refresh()
    assert registry.get_sample_value(age, {"source": "jobs"}) is not None
    assert registry.get_sample_value(age, {"source": "kubelet"}) is None, "there is none here"
    assert registry.get_sample_value("kernelcast_exporter_attribution_kept_seconds", {"source": "jobs"}) == 120
    (tmp_path / "jobs").rmdir()
    made.refresh()
    assert registry.get_sample_value(errors, {"source": "jobs"}) == 1


def test_a_job_file_that_cannot_be_read_costs_its_own_gpu_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad: list[str] = []
    directory = JobDirectory(tmp_path, on_bad=lambda: bad.append("bad"))
    (tmp_path / "0").write_text("7")
    (tmp_path / "1").write_text("8")
    read = JobDirectory._read

    def refused(self: JobDirectory, path: str) -> tuple[str, ...]:
        if path.endswith("/0"):
            raise PermissionError(13, "Permission denied")
        return read(self, path)

    monkeypatch.setattr(JobDirectory, "_read", refused)
    assert directory.jobs() == {"1": ("8",)}
    assert bad == ["bad"]
