from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model.request import DeviceRequest
from shoal.simulation.readers import read_nodes, read_pods, read_trace
from shoal.simulation.source import BadInputError
from shoal.simulation.trace import capacity_milli, demand_milli
from tests.simulation.small import NODES, OPENB_NODES, OPENB_PODS, PODS

GOOD_NODES = OPENB_NODES + "n1,64000,262144,2,P100\nn2,96000,393216,8,G2\nn3,32000,1024,0,\n"
GOOD_PODS = (
    OPENB_PODS
    + "a,12000,16384,1,1000,\nb,6000,12288,1,460,P100|G2\nc,1000,0,0,0,\nd,8,1,4,1000,G2\n"
)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def complaint(
    folder: Path, *, nodes: str | bytes = GOOD_NODES, pods: str | bytes = GOOD_PODS
) -> str:
    with pytest.raises(BadInputError) as caught:
        read_trace(write(folder, "nodes.csv", nodes), write(folder, "pods.csv", pods))
    text = str(caught.value)
    assert text.count("\n") == 0
    assert text.endswith(".")
    return text.removeprefix(f"{folder}/")


def test_openb_lists_become_nodes_and_requests(tmp_path: Path) -> None:
    trace = read_trace(
        write(tmp_path, "nodes.csv", GOOD_NODES),
        write(tmp_path, "openb_pod_list_cpu050.csv", GOOD_PODS),
    )
    assert trace.workload == "cpu050"
    assert [(n.name, n.cpu_milli, n.memory_mib, len(n.devices)) for n in trace.nodes] == [
        ("n1", 64000, 262144, 2),
        ("n2", 96000, 393216, 8),
        ("n3", 32000, 1024, 0),
    ]
    names = [leaf.name for n in trace.nodes for d in n.devices for leaf in d.leaves]
    assert len(set(names)) == 10
    assert [(p.name, p.request.cpu_milli, p.request.memory_mib) for p in trace.pods] == [
        ("a", 12000, 16384),
        ("b", 6000, 12288),
        ("c", 1000, 0),
        ("d", 8, 1),
    ]
    assert [p.request.devices for p in trace.pods] == [
        DeviceRequest(1, whole=True),
        DeviceRequest(1, whole=False, compute_milli=460, accelerators=("P100", "G2")),
        DeviceRequest(0, whole=True),
        DeviceRequest(4, whole=True, accelerators=("G2",)),
    ]
    assert [demand_milli(p.request) for p in trace.pods] == [1000, 460, 0, 4000]
    assert capacity_milli(trace.nodes) == 10_000


def test_a_share_may_be_joined_by_others_until_the_device_is_full(tmp_path: Path) -> None:
    node = read_nodes(write(tmp_path, "nodes.csv", GOOD_NODES))[0]
    leaf = node.devices[0].leaves[0]
    assert leaf.compute_milli == 1000
    assert leaf.tenants >= 1000
    assert node.pods >= 1000 * len(node.devices)


def test_the_same_choice_of_accelerators_is_the_same_request(tmp_path: Path) -> None:
    nodes = write(tmp_path, "nodes.csv", NODES + "n,1,1,1,G2\n")
    rows = "a,1,1,1,500,G2|P100|G2\nb,1,1,1,500,P100|G2\n"
    header = PODS.replace("\n", ",accelerators\n")
    pods = read_pods(write(tmp_path, "pods.csv", header + rows), read_nodes(nodes), nodes)
    assert pods[0].request == pods[1].request


def test_openb_choices_written_in_two_ways_are_two_as_in_the_published_classes(
    tmp_path: Path,
) -> None:
    nodes = write(tmp_path, "nodes.csv", GOOD_NODES)
    rows = "a,1,1,1,500,G2|P100|P100\nb,1,1,1,500,G2|P100\n"
    pods = read_pods(write(tmp_path, "pods.csv", OPENB_PODS + rows), read_nodes(nodes), nodes)
    assert [pod.request.devices.accelerators for pod in pods] == [
        ("G2", "P100", "P100"),
        ("G2", "P100"),
    ]


def test_lists_of_five_columns_and_of_all_columns_are_read(tmp_path: Path) -> None:
    nodes = write(tmp_path, "nodes.csv", GOOD_NODES)
    five = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,500\n"
    all_columns = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\na,1,1,1,500,,LS,Running,0,12537496,\n"
    )
    for content in (five, all_columns):
        file = write(tmp_path, "pods.csv", content)
        assert len(read_pods(file, read_nodes(nodes), nodes)) == 1


def test_a_byte_order_mark_and_windows_line_ends_do_not_matter(tmp_path: Path) -> None:
    plain = read_nodes(write(tmp_path, "plain.csv", GOOD_NODES))
    windows = b"\xef\xbb\xbf" + GOOD_NODES.replace("\n", "\r\n").encode()
    assert read_nodes(write(tmp_path, "windows.csv", windows)) == plain


def test_the_plain_form_repeats_rows_by_count_and_knows_device_memory(tmp_path: Path) -> None:
    nodes = write(
        tmp_path,
        "nodes.csv",
        "name,cpu_milli,memory_mib,devices,accelerator,device_memory_mib,count\n"
        "big,96000,1000,8,H100,81559,2\nsmall,8000,1000,1,L4,23034,\n",
    )
    pods = write(
        tmp_path,
        "pods.csv",
        "name,cpu_milli,memory_mib,devices,compute_milli,device_memory_mib,accelerators,count\n"
        "train,1000,1,8,,,H100,2\nserve,1000,1,1,250,10240,L4|H100,\nplain,1,1,0,,,,\n",
    )
    trace = read_trace(nodes, pods)
    assert [n.name for n in trace.nodes] == ["big-0", "big-1", "small"]
    assert trace.nodes[0].devices[0].leaves[0].memory_mib == 81559
    assert [p.name for p in trace.pods] == ["train-0", "train-1", "serve", "plain"]
    assert trace.pods[0].request.devices == DeviceRequest(8, whole=True, accelerators=("H100",))
    assert trace.pods[2].request.devices == DeviceRequest(
        1, whole=False, memory_mib=10240, compute_milli=250, accelerators=("H100", "L4")
    )


def test_yaml_is_read_as_csv_is(tmp_path: Path) -> None:
    rows = (
        "- name: a\n  cpu_milli: 1000\n  memory_mib: 1\n  devices: 1\n"
        "- {name: b, cpu_milli: 1000, memory_mib: 1, devices: 1, accelerators: ~,"
        " compute_milli: '500'}\n"
    )
    nodes = write(
        tmp_path,
        "nodes.yml",
        "- {name: n, cpu_milli: 1, memory_mib: 1, devices: 2, accelerator: L4}\n",
    )
    csv = PODS + "a,1000,1,1,\nb,1000,1,1,500\n"
    fleet = read_nodes(nodes)
    yaml_pods = read_pods(write(tmp_path, "pods.yaml", rows), fleet, nodes)
    assert yaml_pods == read_pods(write(tmp_path, "pods.csv", csv), fleet, nodes)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (
            OPENB_NODES.replace("sn", "id") + "n1,1,1,1,G2\n",
            (
                'nodes.csv, line 1, column "id": expected the columns of an openb node list'
                ' (sn, cpu_milli, memory_mib, gpu, model), found "id".'
            ),
        ),
        (
            "sn,cpu_milli,memory_mib,model\nn1,1,1,G2\n",
            (
                "nodes.csv, line 1, column gpu: is missing; expected the columns of an openb node"
                " list (sn, cpu_milli, memory_mib, gpu, model)."
            ),
        ),
        (
            "name,cpu_milli,memory_mib,devices,accelerator,cpu_milli\nn,1,1,1,G2,1\n",
            "nodes.csv, line 1, column cpu_milli: is there twice.",
        ),
        (
            NODES + "n1,1,1,1,L4\nn2,-5,1,1,L4\n",
            (
                "nodes.csv, line 3, column cpu_milli: expected a whole number from 0 to 1000000000,"
                ' found "-5".'
            ),
        ),
        (
            NODES + "n1,1,nan,1,L4\n",
            (
                "nodes.csv, line 2, column memory_mib: expected a whole number from 0 to"
                ' 1000000000, found "nan".'
            ),
        ),
        (
            NODES + "n1,1," + "9" * 5000 + ",1,L4\n",
            "nodes.csv, line 2, column memory_mib: expected a whole number from 0 to 1000000000,"
            ' found "' + "9" * 40 + '…".',
        ),
        (
            NODES + "n1,1,1,1,L4\n\nn1,1,1,1,L4\n",
            'nodes.csv, line 4, column name: expected a new name, but "n1" stands on line 2 too.',
        ),
        (
            NODES + ",1,1,1,L4\n",
            "nodes.csv, line 2, column name: expected a name, found nothing.",
        ),
        (
            NODES + "n1,1,1,1,\n",
            "nodes.csv, line 2, column accelerator: expected a name, found nothing.",
        ),
        (
            NODES + "n1,1,1,0,L4\n",
            (
                "nodes.csv, line 2, column devices: expected at least 1, because the accelerator is"
                " described."
            ),
        ),
        (
            NODES + "n1,1,1,1,A|B\n",
            'nodes.csv, line 2, column accelerator: expected one accelerator, found "A|B".',
        ),
        (NODES + "n1,1,1,0,\n", "nodes.csv: no node has a device; expected at least one that has."),
        ("", "nodes.csv, line 1: the file is empty; expected a list of nodes or pods."),
        (" \n\n", "nodes.csv, line 1: the file is empty; expected a list of nodes or pods."),
        (NODES, "nodes.csv, line 2: has a header and no rows."),
        (
            NODES + "n1,1,1\n",
            "nodes.csv, line 2, column devices: expected 5 values as in the header, found 3.",
        ),
        (
            NODES + "n1,1,1,1,L4,7\n",
            "nodes.csv, line 2, column 6: expected 5 values as in the header, found 6.",
        ),
        (
            NODES + 'n1,1,1,1,"L4\nn2,1,1,1,L4\n',
            "nodes.csv, line 2: expected comma-separated values: unexpected end of data.",
        ),
        (
            NODES + "n1,1,1,1,L4\nn2,1,1,1,L",
            (
                "nodes.csv, line 3: the last line does not end, so the file seems to be cut off in"
                " the middle; if it is whole, end its last line with a newline."
            ),
        ),
        (
            b"\x1f\x8b\x08\x00\xff\xfe\n",
            "nodes.csv, line 1: expected UTF-8 text, found other bytes.",
        ),
        (
            NODES.encode() + b"n1,1,1,1,L4\nn\xff,1,1,1,L4\n",
            "nodes.csv, line 3: expected UTF-8 text, found other bytes.",
        ),
        (
            NODES.encode() + b"n\0,1,1,1,L4\n",
            "nodes.csv, line 2: expected text, found a zero byte.",
        ),
        (
            NODES + "n\x1b1,1,1,1,L4\n",
            'nodes.csv, line 2, column name: expected printable characters, found "n\\x1b1".',
        ),
    ],
)
def test_a_mistake_in_a_node_list_is_pointed_at(
    tmp_path: Path, nodes: str | bytes, expected: str
) -> None:
    assert complaint(tmp_path, nodes=nodes) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            "a,1,1,1,500,NOPE|OTHER",
            (
                'line 2, column gpu_spec: no node of {nodes} has "NOPE|OTHER"; expected at least'
                " one of G2, P100."
            ),
        ),
        (
            "a,1,1,1,500,G2||P100",
            'line 2, column gpu_spec: expected names joined by "|", found "G2||P100".',
        ),
        (
            "a,1,1,0,0,G2",
            "line 2, column gpu_spec: expected nothing, because no device is asked for.",
        ),
        (
            "a,1,1,1,0,",
            'line 2, column gpu_milli: expected a whole number from 1 to 1000, found "0".',
        ),
        (
            "a,1,1,1,1001,",
            'line 2, column gpu_milli: expected a whole number from 1 to 1000, found "1001".',
        ),
        (
            "a,1,1,2,500,",
            'line 2, column gpu_milli: expected a whole number from 1000 to 1000, found "500".',
        ),
        (
            "a,1,1,0,500,",
            'line 2, column gpu_milli: expected a whole number from 0 to 0, found "500".',
        ),
        (
            "a,1,1,99999999999999999999,1000,",
            (
                "line 2, column num_gpu: expected a whole number from 0 to 1024, found"
                ' "99999999999999999999".'
            ),
        ),
        (
            "a,1.5,1,1,1000,",
            'line 2, column cpu_milli: expected a whole number from 0 to 1000000000, found "1.5".',
        ),
        (
            "a,,1,1,1000,",
            (
                "line 2, column cpu_milli: expected a whole number from 0 to 1000000000, found"
                " nothing."
            ),
        ),
    ],
)
def test_a_mistake_in_a_pod_is_pointed_at(tmp_path: Path, row: str, expected: str) -> None:
    text = complaint(tmp_path, pods=OPENB_PODS + row + "\n")
    assert text == f"pods.csv, {expected.format(nodes=tmp_path / 'nodes.csv')}"


def test_pods_that_never_fill_the_fleet_are_refused(tmp_path: Path) -> None:
    assert complaint(tmp_path, pods=OPENB_PODS + "a,1,1,0,0,\n") == (
        "pods.csv: no pod asks for a device; expected at least one that does."
    )
    rows = "".join(f"p{i},1,1,0,0,\n" for i in range(200)) + "a,1,1,1,1,\n"
    assert complaint(tmp_path, pods=OPENB_PODS + rows) == (
        f"pods.csv: the pods ask for so little that filling the devices of {tmp_path}/nodes.csv"
        " takes 2613000 of them; expected at most 2000000."
    )


def test_pods_too_different_to_be_measured_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.simulation.readers.MOST_CLASSES_ON_NODES", 5)
    assert complaint(tmp_path, pods=OPENB_PODS + "a,1,1,1,1000,\nb,2,1,1,1000,\n") == (
        "pods.csv: the frequent pods ask for 2 different things, too many to be tried on each of 3"
        " nodes; expected at most 1: round what they ask for."
    )


def test_a_whole_device_takes_all_its_memory(tmp_path: Path) -> None:
    pods = "name,cpu_milli,memory_mib,devices,device_memory_mib\na,1,1,1,100\n"
    assert complaint(tmp_path, pods=pods) == (
        "pods.csv, line 2, column device_memory_mib: expected nothing, because it is only for"
        " shares: a whole device has all its memory."
    )


def test_counts_are_bounded_and_their_names_are_checked(tmp_path: Path) -> None:
    header = "name,cpu_milli,memory_mib,devices,accelerator,count\n"
    assert complaint(tmp_path, nodes=header + "n,1,1,1,L4,2\nn-1,1,1,1,L4,\n") == (
        'nodes.csv, line 3, column name: expected a new name, but "n-1" stands on line 2 too.'
    )
    assert complaint(tmp_path, nodes=header + "n,1,1,1,L4,600000\nm,1,1,1,L4,600000\n") == (
        "nodes.csv, line 3, column count: the counts add up to more than 1000000."
    )
    assert "column count: expected a whole number from 1" in complaint(
        tmp_path, nodes=header + "n,1,1,1,L4,0\n"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("name: n\n", 'line 1: expected a list, each item starting with "- name:".'),
        ("# nothing\n", 'line 1: expected a list, each item starting with "- name:".'),
        ("[]\n", "line 1: expected 1 to 1000000 items in the list."),
        ("- n1\n", 'line 1: expected an item with named values, such as "name: n1".'),
        ("- [1]: n\n", "line 1: expected the name of a column."),
        ("- name: n\n  cpu_milli: [1]\n", "line 2, column cpu_milli: expected a single value."),
        ("- name: n\n  name: m\n", "line 2, column name: is there twice."),
        (
            "- name: n\n  cpu_milli: 1\n  memory_mib: x\n  devices: 1\n  accelerator: L4\n",
            'line 3, column memory_mib: expected a whole number from 0 to 1000000000, found "x".',
        ),
        (
            "- {name: n, cpu_milli: 1, memory_mib: 1, devices: 1, accelerator: L4}\n- name: m\n",
            "line 2, column cpu_milli: is missing.",
        ),
        (
            "- {name: n, cpu_milli: 1,\n",
            "line 2, column 1: expected YAML: did not find expected node content.",
        ),
        (
            "- name: n\n\tcpu: 1\n",
            "line 2, column 1: expected YAML: found a tab character that violates indentation.",
        ),
        (
            "- name: !!python/object/apply:os.abort []\n",
            "line 1, column name: expected a single value.",
        ),
    ],
)
def test_a_mistake_in_yaml_is_pointed_at(tmp_path: Path, content: str, expected: str) -> None:
    file = write(tmp_path, "nodes.yaml", content)
    with pytest.raises(BadInputError) as caught:
        read_nodes(file)
    assert str(caught.value) == f"{file}, {expected}"


def test_a_deep_yaml_is_refused_and_does_not_end_the_process(tmp_path: Path) -> None:
    with pytest.raises(BadInputError):
        read_nodes(write(tmp_path, "nodes.yaml", "[" * 20_000 + "\n"))


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"nodes\.csv: cannot be read: No such file"):
        read_nodes(tmp_path / "nodes.csv")
    with pytest.raises(BadInputError, match="expected a file, found a directory"):
        read_nodes(tmp_path)


@given(content=st.binary(max_size=400))
def test_junk_is_refused_with_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    folder = tmp_path_factory.mktemp("junk")
    complaint(folder, nodes=content)
    complaint(folder, pods=OPENB_PODS.encode() + content)


@given(cut=st.integers(1, len(GOOD_PODS) - 1))
def test_a_list_cut_off_anywhere_within_a_line_is_refused(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    head = GOOD_PODS[:cut]
    if head.endswith("\n"):
        return
    assert "cut off in the middle" in complaint(folder, pods=head)
