"""The columns of every stored table: name, type, unit, meaning, meaning of null, version.

First the tables of single cases: what was run, what differs, why, how long. Then those of networks,
whole models, public reports, remedies and scripts, and of how well probe answers. Tables stand in
the order in which files have their columns.

The store, ``results/README.md`` and the notebooks are derived from or checked against this file.
pyarrow is imported only where it is used, so that importing costs nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

# Version of the format that is written. All older ones can be read: see :data:`HISTORY`.
VERSION = 10

# What each version added. A column that is newer than a file reads as null.
HISTORY: dict[int, str] = {
    1: "The first format: every table and column that is not listed below.",
    2: "`networks`. Public reports: `reports`, `findings`. `remedies`, `reproductions`.",
    3: "`trials`; `comparisons.signed_zero`, `reveals.certified`; layouts as an axis.",
    4: "Models of any shape: `walks`, `sources`.",
    5: "The invariant mode: `invariances`.",
    6: "Answers held against the truth: `planted` causes of functions, `promises` of thresholds.",
    7: "Bugs told from rounding: `verdicts`.",
    8: "Whether rounding can be why: in columns of `trials`, `walks`, `sources`; `causes.beyond`.",
    9: "`reveals.sets`, `promises.sets`; `certified` is no longer written.",
    10: "Models in pieces: `schedules`.",
}

RUN_IDENTITY = (
    *("experiment", "target", "library_version", "python_version", "numpy_version", "device"),
    *("machine", "cpu_family", "cpu_model_number", "cpu_isa", "cores", "os", "emulated"),
    *("switches", "environment"),
)


# The int64 that stands for null in arrays: no distance in ulps is that small.
NULL_INT = -(2**63)

# Our type names and the Arrow type of each. ``json`` is text with sorted keys.
TYPES = {
    "text": "string",
    "json": "string",
    "int": "int64",
    "bits": "uint64",
    "float": "float64",
    "flag": "bool",
    "time": "timestamp[us, UTC]",
    "ranges": "list<int64>",
    "indices": "list<int64>",
}


@dataclass(frozen=True)
class Column:
    """One column of a table: its name, type, unit and meaning.

    ``null`` says what a null means; None: the column is never null. Columns with ``key`` identify
    a row: of two rows with the same keys the later one counts. ``foreign`` marks text that probe
    did not write (a library's messages): host, user and paths are removed when it is stored.
    In NumPy arrays NaN and :data:`NULL_INT` stand for null.
    """

    name: str
    type: str
    meaning: str
    unit: str = ""
    null: str | None = None
    key: bool = False
    since: int = 1
    foreign: bool = False

    def arrow(self) -> pyarrow.DataType:
        """The Arrow type of the column."""
        import pyarrow as pa

        types = {
            "string": pa.string(),
            "int64": pa.int64(),
            "uint64": pa.uint64(),
            "float64": pa.float64(),
            "bool": pa.bool_(),
            "timestamp[us, UTC]": pa.timestamp("us", tz="UTC"),
            "list<int64>": pa.list_(pa.int64()),
        }
        return types[TYPES[self.type]]


# The integers that stand for words of :mod:`probe.case.layout` in ``at`` and ``against``.
LAYOUTS = (
    "layouts by number: 1 `contiguous`, 2 `transposed`, 3 `channels_last`, 4 `strided`, "
    "1000 + N `offset:N`"
)
FLAT = "flat index into the left output, shape (batch, *spatial, filters), row-major"
RANGES = f"which outputs: start, stop, start, stop, ...; {FLAT}"

# Columns that several tables have, written as in ``_TEXT``.
RUN = "*run_id text the run that measured it: `runs.run_id`"
CASE = "*case_id text what was computed: `cases.case_id`"
TARGET = "*target text where it was computed: canonical target text"
PLACE = f"""\
{RUN}
{CASE}
{TARGET}
*vary text the axis that was varied: `length`, `batch`, `filters`, `channels`, `layout`
*at int the axis' value on the left side; {LAYOUTS} [elements of `vary`]"""
PAIR = f"{PLACE}\n*against int the axis' value on the right side [elements of `vary`]"
NETWORK = "*network_id text hash of the chain of layers with its weights"
CONTENT = "*content int valid length: positions of data, at the start [positions]"
MODEL = f"""\
*model text name of the model, of those that the experiment lists
{TARGET}
*vary text `batch`, `length`, `padding`, `threads`, `mode`, `library`
*at text its value on the left side
*against text its value on the right side"""

# What is proved of differing outputs, in tables of runs: see ``probe.explain.enclosure``.
_EARLIER = "not judged, or stored before version 8"
VERDICT_COUNTS = f"""\
explained@8 int of the differing ones, replayed on both sides [outputs]; null: {_EARLIER}
within@8 int of the others, both sides inside of all that rounding can give [outputs];
    null: {_EARLIER}
beyond@8 int of the others, outside of it on a side: no rounding [outputs]; null: {_EARLIER}
open@8 int of the others, neither is known [outputs]; null: {_EARLIER}"""

# Every table: its name, the version of the format that added it, what a row is, and its columns in
# the order in which files have them. A column is
#
#     *name@version type! meaning [unit]; null: what a null means
#
# where ``*`` marks keys, ``@version`` columns that are younger than their table, and ``!`` foreign
# text. What has no ``null`` is never null. Indented lines go on with the one above.
_TEXT = f"""
## runs
One row per run: a target on a machine, with the state of its software.

*run_id          text  hash of everything that may decide bits, see `probe.case.schema.run_id`
started          time  when the run was started or last resumed [UTC]
experiment       text  the experiment's name; null: not run from an experiment
target           text  canonical target text
library          text  distribution name; null: the library did not start
library_version  text  its version; null: the library did not start
python_version   text  the target's Python; null: the library did not start
numpy_version    text  the target's NumPy; null: the library did not start
device           text  `cpu`, `gpu:0`, `arm64`, ...
machine          text  the machine's label, also the name of its results folder
cpu_vendor       text  `AuthenticAMD`, `GenuineIntel`, ...; null: not reported
cpu_model        text  model name that the processor reports; null: not reported
cpu_family       int   CPUID family; null: not an x86 processor
cpu_model_number int   CPUID model; null: not an x86 processor
cpu_isa          text  widest vector extension: `sse41`, `avx2`, ...; null: not reported
cores            int   processors that the run may use [logical processors]
os               text  system and C library, such as `Linux glibc 2.36`
emulated         text  what emulates the processor; null: nothing: native
switches         json  every switch of the target with its value, defaults included
environment      json! the variables set for the target's process
git_commit       text  the commit of probe's checkout; null: not run from a checkout
git_dirty        flag  whether tracked source files had changes; null: not run from a checkout
probe_version    text  version of probe
schema_version   int   version of this format

## cases
One row per case: what was computed.

*case_id    text  hash of the case's content
op          text  `conv1d`, `conv2d`, `conv3d`, `depthwise_conv2d`, ...
kernel      text  kernel size, `5` or `1x5` [elements of each spatial axis]
in_channels int   input channels [channels]
filters     int   output channels [channels]
stride      text  `1` or `1x2` [elements of each spatial axis]
dilation    text  `1` or `1x2` [elements of each spatial axis]
groups      int   channel groups
padding     text  `valid`, `same`, `caffe`, `1`, `0:1`, `0:1,2:2`
length      int   last spatial axis [elements]; null: given by the sweep
height      text  the other spatial axes [elements]; null: the kernel's extent
batch       int   batch size [entries]
dtype       text  `float32`, `float64`, `float16`, `bfloat16`
operands    text  kind of generated operands
seed        int   seed of the generated operands
summands    int   products added for one output, the bias not counted [products]
json        json  the whole case, as `Case.from_json` reads it

## comparisons
One row per case, target and pair of values of the varied axis.

{PAIR}
compared       int   outputs that must agree and were compared [outputs]
not_compared   int   left outputs without a partner, or with a different window [outputs]
differing      int   compared outputs whose values differ [outputs]
max_ulp        int   largest absolute distance [ulp]; null: no distance is a number
max_scaled     float largest |difference| / (eps * sum|x*w|) [1]; null: not known
first          int   first differing output: {FLAT}; null: none differs
control        text  the same shape, run again: `equal`, `differs`, `alignment differs`; null: not
                     run
digest_at      text  hash of the left outputs that were compared
digest_against text  hash of the right outputs that were compared
kept           int   differing outputs that are rows of `differences` [outputs]
seconds        float time of the left call in the library [s]; null: not timed
signed_zero@3  int   compared outputs that are +0 on one side and -0 on the other [outputs]; null:
                     not counted

## differences
One row per differing output.

{PAIR}
*index       int   {FLAT}
batch        int   batch entry
row          int   flat index over the spatial axes except the last; 0 if it has one
position     int   index on the last spatial axis
channel      int   filter
bits_at      bits  the left value's bits, zero-extended
bits_against bits  the right value's bits, zero-extended
ulp          int   signed distance, right minus left [ulp]; null: NaN, or too large for int64
scaled       float (right - left) / (eps * sum|x*w|) [1]; null: not known

## outputs
One row per output that an experiment stores in full, whether it differs or not.

{PLACE}
*index   int   flat index into the output, shape (batch, *spatial, filters), row-major
batch    int   batch entry
row      int   flat index over the spatial axes except the last; 0 if it has one
position int   index on the last spatial axis
channel  int   filter
bits     bits  the value's bits, zero-extended

## windows
One row per output position of a group: which inputs it reads, as revealed.

{RUN}
{CASE}
{TARGET}
*group    int   channel group, whose filters read the same; for pooling, the channel
*position int   output position: flat index over (batch, *spatial)
reads     indices for each product, in the order of the weights, the input it reads: flat index into
                x, shape (batch, *spatial, channels); -1 is padding. For pooling, of each element of
                the window
as_said   flag  whether these are the inputs that the case's padding implies
counted   int   number by which an average divides [elements]; null: not an average
pad_with  text  value of the padding of pooling; null: no padding, or no pooling

## failures
One row per failure of a target. A failure is not a finding.

{RUN}
*case_id text  `cases.case_id`; null: failed before any case
{TARGET}
*vary    text  the axis that was varied; null: failed before any case
*at      int   its value [elements of `vary`]; null: not at a single value
kind     text  `unavailable`, `unsupported`, `error`, `crash`, `timeout`, ...
message  text! what went wrong, in one line
stderr   text! the last lines that the process printed; null: none

## orders
One row per distinct summation tree.

*order_id    text  hash of the tree
tree         text  the tree, such as `(((0+1)+(2+3))+4)`; leaves are product numbers
leaves       int   summands, including the bias where it is one of them [summands]
depth        int   most additions between a leaf and the root [additions]
children_max int   most children of a node [summands]
fprev        int   calls that FPRev needs for such an output [calls]; null: not counted

## roundings
One row per distinct rounding: which products are fused, and the formats.

*rounding_id text  hash of all columns that follow
style        text  which products are fused into an addition: `none`, `all`, `some`
fused        ranges leaves fused with their addition: start, stop, ...
products     text  format of the products; null: the case's dtype
accumulator  text  format of the partial sums; null: the case's dtype
json         json  everything besides the tree that a replay needs

## reveals
One row per order and rounding that some outputs of a call share.

{PLACE}
*order_id    text  `orders.order_id`; null: the outputs are not sums
*rounding_id text  `roundings.rounding_id`; null: not known
outputs      int   outputs that have this order and rounding [outputs]
replayed     int   of these, reproduced bit for bit [outputs]
ranges       ranges {RANGES}
calls        int   calls of the operator on chosen operands, for the whole reveal [calls]
checks       int   further calls: controls and replay [calls]; null: not counted
seconds      float time of the whole reveal [s]
evidence     text  why the outputs are not sums; null: they are sums
certified@3  int   of the outputs, those of which every addition and every fusion was tested
                   [outputs]; null: not tested
sets@9       int   fresh sets of operands that it was replayed on, scaled through the format's whole
                   range [sets]; null: the outputs are not sums, or not counted

## causes
One row per cause of some differences of a comparison.

{PAIR}
*cause   text  `window`, `order`, `rounding`, `alignment`, `order+rounding`, ...
outputs  int   differing outputs with this cause [outputs]
replayed int   of these, reproduced bit for bit on both sides [outputs]
ranges   ranges {RANGES}
beyond@8 int   of these, those with a side that no order of additions can give [outputs]; null: not
               judged

## kernels
One row per kernel that the library itself reports: evidence, never a cause.

{PLACE}
*source text  `onednn-verbose`, `symbols`, `backend-choice`, ...
kernel  text  kernel that the library reports; null: unknown: see `missing`
missing text! why the kernel is unknown; null: it is known

## measurements
One row per repetition of a measurement, of probe or of a network.

{RUN}
*subject text  what was measured, in words
*variant text  which variant was measured: `probe`, `by hand`, ...
*size    int   amount of work: comparisons, elements, lengths
*repeat  int   number of the repetition; equal numbers were measured in turns
value    float the measured value [see `unit`]
unit     text  `s` (wall-clock time), `MiB` (peak memory), ...

## networks @2
One row per network. If `part` is given, the other tables describe that part alone.

{NETWORK}
name             text  the network's name
source           text  the model that it is: a file, or `module:function`; null: not given
layers           int   number of layers, including activations and pooling [layers]
dtype            text  `float32`, `float64`, `float16`
in_channels      int   channels of the input [channels]
filters          int   channels of the output [channels]
field            int   receptive field of an output of the last layer [positions]
jump             int   stride of the whole network, on the input [positions]
json             json  the layers as a network description, without their weights
examined         int   layers of the model, as it counts them, that `layers` contains whole
                       [layers]; null: not counted
operations_total int   layers of the whole model, as it counts them [layers]; null: not counted
part             text  which part of the model was read, and where it ends; null: the whole model
                       was read

## reports @2
One row per public report of runs that were expected to agree and do not.

*thread text  where it was reported: `owner/repository#number`, or a name
number  int   its place in the experiment's list
title   text  what was reported, in our words
answer  text  what its maintainers answered, in our words; null: no answer was read
home    text  the reported library, as a target; null: no target of probe
reason  text  why it was not run; null: it was run

## findings @2
One row per question of a public report and target: what happens today.

{RUN}
*thread         text  the report: `reports.thread`
*question       text  which two runs are compared, in words
{TARGET}
case_id         text  the left side's case: `cases.case_id`
against_case_id text  the right side's case; null: same, at a different value
against_target  text  where the right side ran; null: on the same target
vary            text  the axis along which the two sides differ; null: none
at              int   its value on the left side [elements of `vary`]; null: no axis
against         int   its value on the right side [elements of `vary`]; null: no axis
compared        int   outputs that were expected to agree [outputs]
differing       int   of these, with different values, or on one side only [outputs]
max_ulp         int   largest absolute distance [ulp]; null: no distance is a number
bits_at         bits  left bits of the first differing output; null: none differs
bits_against    bits  its right bits; null: none differs
explained       int   differing outputs whose cause was searched for [outputs]
causes          json  these, counted by cause: `order`, `rounding`, `window`, ...
replayed        int   of these, reproduced bit for bit on both sides [outputs]
smallest        json  smallest case that still differs: case, operands, both summations; null: not
                      searched for

## remedies @2
One row per remedy of a case or network on a target. The exact sums are those of float64; the scale
is sum|x*w|, for a network the largest |output|.

{RUN}
*case_id      text  `cases.case_id`; null: a whole network
*network_id   text  `networks.network_id`; null: a single case
{TARGET}
*remedy       text  `default`, `pad`, `chunks=64`, `threads=1`, `stable`, ...
{CONTENT}
*fixed        int   full length [positions]
about         text  the remedy in a few words
place         text  the target on which the remedy runs
lengths       int   lengths whose orders were compared with that of `fixed` [lengths]
verdict       text  `exact` for all finite operands, `differs`, or `not known`
compared      int   outputs that must agree [outputs]
differing     int   of these, added in a different order than at `fixed` [outputs]
unknown       int   of these, those whose summation is unknown [outputs]
refusal       text! why it can't be used or judged; null: it can be
seconds       float median time of a call at `content` [s]; null: not timed
seconds_fixed float median time of a call at `fixed` [s]; null: not timed
ratio         float `seconds` over the default's at `content` [1]; null: not timed
of_fixed      float `seconds` over the default's at `fixed` [1]; null: not timed
ratio_fixed   float `seconds_fixed` over the default's at `fixed` [1]; null: not timed
error_rms     float root mean square of |output - exact| / (eps * scale) at `fixed` [1]; null: not
                    run
error_max     float the largest of these [1]; null: not run
keeps         flag  whether `fixed` has the default's bits; null: not run
recommended   flag  whether it is the cheapest exact one; never for a partial model
vary          text  what `content`, `fixed` and `lengths` are: `length` or `batch`; null: lengths:
                    stored before this column existed

## reproductions @2
One row per finding that was drawn, reduced, and reproduced by its script.

{PAIR}
*source         text  the experiment from whose results the finding was drawn
number          int   its place in the draw, from 0
found           int   outputs that were compared in the original case [outputs]
processes       int   fresh processes that ran the script [processes]
confirmed       flag  whether all of them gave the measured bits
reason          text! why they did not; null: they did
status          int   exit status of the script; null: not confirmed
tries           int   smaller cases that were tried [cases]; null: not confirmed
runs            int   calls of the operator for these [calls]; null: not confirmed
ended           text  why the reduction ended: `minimal`, `budget`; null: not confirmed
label           text  the smallest case in words; null: not confirmed
smallest        json  the smallest case; null: not confirmed
small_summands  int   products of each output [products]; null: not confirmed
small_at        int   its left value of `vary` [elements]; null: not confirmed
small_against   int   its right value of `vary` [elements]; null: not confirmed
small_compared  int   its compared outputs [outputs]; null: not confirmed
small_elements  int   numbers in its operands [elements]; null: not confirmed
small_not_zero  int   of these, nonzero [elements]; null: not confirmed
differing       int   its outputs that differ [outputs]; null: not confirmed
max_ulp         int   largest distance of these [ulp]; null: none is a number
causes          json  these, by cause: `order`, `rounding`, ...; null: not confirmed
replayed        int   compared outputs replayed [outputs]; null: not confirmed
emulated        flag  whether `emulated.py` prints the same bits; null: no such file
lines           int   length of `reproduce.py` [lines]; null: not confirmed
found_differing int   differing outputs, original case [outputs]; null: not confirmed, not a number,
                      or stored before this column existed
found_max_ulp   int   largest distance of these [ulp]; null: not confirmed, not a number, or stored
                      before this column existed
found_relative  float their largest relative difference [1]; null: not confirmed, not a number, or
                      stored before this column existed
found_causes    json  these, counted by cause; null: not confirmed, not a number, or stored before
                      this column existed
found_kernels   json  kernels of the original case by side, source; null: not confirmed, not a
                      number, or stored before this column existed
relative        float largest relative difference of `differing` [1]; null: not confirmed, not a
                      number, or stored before this column existed
kernels         json  kernels of the smallest case by side, source; null: not confirmed, not a
                      number, or stored before this column existed
kept_cause      flag  whether it has the main cause and no new one; null: not confirmed, not a
                      number, or stored before this column existed
kept_kernels    flag  whether the same kernels run; null: the library names none, or stored before
                      this column existed
seconds         float time from the finding to its proof [s]
seconds_proof   float of this, in fresh processes [s]; null: not confirmed

## trials @3
One row per random pair of runs: what probe finds, and what direct calls of the libraries give.

{RUN}
*number        int   the trial's place in the draw
{TARGET}
case_id        text  the left side's case: `cases.case_id`
against_target text  where the right side ran; null: on the same target
vary           text  the axis along which the two sides differ; null: none
at             int   its value on the left side [elements of `vary`]; null: no axis
against        int   its value on the right side [elements of `vary`]; null: no axis
compared       int   outputs that were compared [outputs]; null: refused: see `reason`
differing      int   of these, with different values [outputs]; null: refused: see `reason`
max_ulp        int   largest absolute distance [ulp]; null: none is a number
causes         json  these, by cause: `order`, `rounding`, ...; null: refused: see `reason`
replayed       int   differing outputs replayed on both sides [outputs]; null: refused: see `reason`
by_order       int   outputs added in different orders [outputs]; null: refused: see `reason`
unknown        int   outputs whose summation is unknown [outputs]; null: refused: see `reason`
refereed       int   outputs of direct calls of the library, both sides [outputs]; null: no direct
                     call of this library, or refused
other          int   of these, with bits unlike probe's [outputs]; null: no direct call of this
                     library, or refused
missed         int   outputs that differ by the direct calls alone [outputs]; null: no direct call
                     of this library, or refused
false          int   outputs that differ by probe alone [outputs]; null: no direct call of this
                     library, or refused
unrefereed     text! why there is no direct call; null: there is
reason         text! why nothing was compared; null: it was
seconds        float time for both sides, their reveals and the direct calls [s]
{VERDICT_COUNTS}

## planted @6
One row per pair of functions whose difference is known, as it was planted: what probe answers.

{RUN}
*number   int   the pair's place in the draw
{TARGET}
title     text  what was done to one of two functions, in words; null: not run: see `reason`
planted   text  the causes that are right, or `nothing`; null: not run: see `reason`
direct    int   outputs that differ in direct calls [outputs]; null: not run: see `reason`
verdict   text  of the outputs: `equal`, `differs`, `unknown`; null: not run: see `reason`
differing int   outputs that differ as probe says [outputs]; null: the verdict is `unknown`, or not
                run
cause     text  the first operation's cause; null: none, or unknown
arguments text! its arguments that differ; null: none do
answer    text  `right`, `unknown` or `false`; null: not run: see `reason`
why       text! the cause in a sentence; null: no operation differs
reason    text! why it was not run; null: it was
seconds   float time for the direct calls and the answer [s]

## promises @6
One row per random case: at which sizes `probe fix sizes` says that all rows add alike, and what
direct calls of the library say at each of them.

{RUN}
*number    int   the case's place in the draw
{TARGET}
case_id    text  the case: `cases.case_id`
vary       text  `length` or `batch`
upto       int   the largest size that was asked for [elements of `vary`]
classes    int   classes of sizes; null: refused: see `reason`
sizes      int   sizes that they or the floor promise [sizes]; null: refused: see `reason`
floor      int   the floor [elements of `vary`]; null: no floor, or refused
step       int   its multiples [elements of `vary`]; null: refused: see `reason`
certified  flag  whether every addition of all sizes was tested; null: refused: see `reason`
sets@9     int   sets of operands that orders were replayed on [sets]; null: refused: see `reason`
compared   int   outputs of direct calls that were compared [outputs]; null: refused: see `reason`
false      int   promised sizes that a direct call contradicts [sizes]; null: refused: see `reason`
expected   int   sizes that are only expected in a class [sizes]; null: refused: see `reason`
unexpected int   of these, contradicted by a direct call [sizes]; null: refused: see `reason`
reason     text! why nothing was promised; null: it was
seconds    float time for the search and the direct calls [s]

## walks @4
One row per pair of runs of a model, compared operation by operation.

{RUN}
{MODEL}
weights         text  where the weights come from: a package, or `seeded`
verdict         text  of the outputs: `equal`, `differs`, `unknown`; null: refused: see `reason`
operations      int   operations of both runs [operations]; null: refused: see `reason`
examined        int   of these, compared [operations]; null: refused: see `reason`
sources         int   inputs agree, outputs differ [operations]; null: refused: see `reason`
carried         int   inputs and outputs differ [operations]; null: refused: see `reason`
own             int   of `carried`, those that also differ on equal inputs [operations]; null: not
                      tested
healed          int   inputs differ, outputs agree [operations]; null: refused: see `reason`
one_side        int   operations of one run only [operations]; null: refused: see `reason`
first           text  name of the first source; null: there is none
first_op        text  its operation, as the library calls it; null: there is none
first_cause     text  its cause: `order`, `place`, `argument`, `alignment`, ...; null: no source, or
                      its cause is unknown
compared        int   numbers of the outputs that must agree [numbers]; null: refused: see `reason`
differing       int   of these, with different bits [numbers]; null: refused: see `reason`
max_ulp         int   largest distance of the outputs [ulp]; null: no number
scaled          float largest difference over the largest output [eps]; null: refused: see `reason`
rows            int   rows of the outputs that must agree [rows]; null: refused: see `reason`
crossed         int   of these, those with a different argmax [rows]; null: refused: see `reason`
plain_seconds   float time of a run without recording [s]; null: refused: see `reason`
watched_seconds float time of a recorded run, with digests [s]; null: refused: see `reason`
plain_bytes     int   peak memory of a run without recording [B]; null: unknown
watched_bytes   int   peak memory of a recorded run [B]; null: unknown
seconds         float time for everything: runs, comparison, causes [s]
notes           text! further notes; null: none
reason          text! why nothing was compared; null: it was
{VERDICT_COUNTS}
decisions@8     int   argmaxes, top fives and signs of the outputs [decisions]; null: none is known,
                      or before version 8
changed@8       int   of these, that differ between the runs [decisions]; null: none is known, or
                      before version 8
proved@8        int   of these, that no order of additions can change [decisions]; null: not asked
                      any more, or before version 8

## sources @4
One row per operation that differs although its inputs agree, or were made to.

{RUN}
{MODEL}
*number   int   place of the operation in the run
name      text  the operation, by its place in the model
verdict   text  `source`, or `carried`: it follows one and differs by itself too
op        text  what the library calls it
kind      text  `product`, `convolution`, `pool`, `reduction`, `norm`, `function`, ...
compared  int   numbers that must agree [numbers]
differing int   of these, with different bits [numbers]
max_ulp   int   largest distance [ulp]; null: no number
cause     text  why it differs: `order`, `place`, `argument`, `alignment`, ...; null: unknown, or
                not searched for
examined  int   differing numbers searched for a cause [numbers]; null: none
replayed  int   of these, replayed on both sides [numbers]; null: none
alone     int   1: run alone, it gave its bits on both sides; null: not tried
why       text! the cause in a sentence; null: not searched for
{VERDICT_COUNTS}

## invariances @5
One row per layer or model and varied axis: how many numbers change in the unchanged library and in
the invariant mode.

{RUN}
*subject        text  name of the layer or model, of those that the experiment lists
{TARGET}
*axis           text  what was varied: `size`, `batch`, `order`, `padding`, `threads`
*like           text  `like` of the invariant mode: `largest` or `cheapest`
*threads        int   threads of the library [threads]
kind            text  `linear`, `conv2d`, `grouped`, ..., `model`
dtype           text  format of the numbers
sizes           ranges sizes that were run: start, stop, ...
compared        int   numbers that must agree, of all sizes and operands [numbers]
plain           int   of these, with different bits in the unchanged library [numbers]
plain_sizes     ranges sizes at which `plain` is not 0: start, stop, ...
differing       int   of `compared`, different in the invariant mode [numbers]
differing_sizes ranges sizes at which `differing` is not 0: start, stop, ...
kept            flag  whether the largest size has the unchanged library's bits; null: not promised
                      by `cheapest`
left            int   operations that the mode left unchanged [operations]
notes           text! notes of the mode; null: none
seconds         float time for this row [s]

## verdicts @7
One row per planted mistake, library, model or pair of conditions: which of the differing outputs
rounding can explain.

{RUN}
*part      text  `planted`, `control`, `pairs`, `reports`, `models`, `conditions`, `releases`
*name      text  what was compared: the planted mistake, the model, ...
{TARGET}
*dtype     text  format of operands and results; empty where there are several
*summands  int   products of each sum; 0 where there are several
pairs      int   pairs of runs [pairs]; null: not of runs
outputs    int   outputs that differ, or were made to [outputs]; null: conditions were asked for
explained  int   of these, replayed on both sides [outputs]; null: conditions were asked for
within     int   of these, inside of all that rounding can give [outputs]; null: conditions were
                 asked for
beyond     int   of these, outside of it on a side [outputs]; null: conditions were asked for
unknown    int   of these, neither is known [outputs]; null: conditions were asked for
effect     float how many times as large a mistake that is `within` had to be, median; null: none is
                 within, or not planted
decisions  int   argmaxes, top fives and signs of outputs [decisions]; null: no model
changed    int   of these, that differ between the runs [decisions]; null: no model
proved     int   of these, that no order can change [decisions]; null: not asked any more
conditions text  the smallest sets that bring the bits back; null: not asked for
seconds    float time for this row [s]
cause@8    text  why they differ, in words; null: none does, or not asked

## schedules @10
One row per model and schedule: its pieces against the same computed whole.

{RUN}
*part      text  `mistakes`, `right`, `models`, `sizes`, `tiles`, `channels`
*model     text  the model or layer
{TARGET}
*schedule  text  in which pieces, as `--at` says it
*dtype     text  format of the numbers
*planted   text  what is wrong with the schedule; empty where nothing is
verdict    text  `equal`, `differs`, `unknown`; null: refused: see `reason`
called     text  what a difference is called: `window`, `grid`, `seams`, `rounding`, ...; null:
                 refused: see `reason`
outputs    int   outputs that pieces keep [outputs]; null: refused: see `reason`
compared   int   of these, compared by index [outputs]; null: refused: see `reason`
differing  int   of these, with different bits [outputs]; null: refused: see `reason`
max_ulp    int   largest distance [ulp]; null: no number
window     int   outputs that read other inputs than the whole's [outputs]; null: not asked
far        int   outputs further apart than rounding that don't [outputs]; null: not asked
lost       int   outputs that are missing at a seam [outputs]; null: not asked
doubled    int   outputs that are given twice at a seam [outputs]; null: not asked
enters     text  the operation at which a mistake enters; null: there is none, or it is not known
first      text  the first source, an operation; null: there is none
referee    text  the first operation of which direct calls differ; null: none, or not called
predicted  flag  whether equal bits were predicted from the orders of sums; null: not predicted
safe       ranges sizes that are said to have the bits of the whole: start, stop, ...; null: not
                  asked
broken     int   of these, contradicted by a random prompt [sizes]; null: not asked
prompts    int   random prompts [prompts]; null: none
positions  indices differing outputs at each position of the input's first axis that is cut
                 [outputs]; null: not counted
right      flag  whether the answer is what was planted, predicted or called; null: refused: see
                 `reason`
reason     text! why nothing was compared; null: it was
seconds    float time for this row [s]
"""

_COLUMN = re.compile(
    r"(?P<key>\*?)(?P<name>\w+)(@(?P<since>\d+))? +(?P<type>\w+)(?P<foreign>!?) +"
    r"(?P<meaning>.*?)( \[(?P<unit>[^]]*)\])?(; null: (?P<null>.*))?"
)


TABLES: dict[str, tuple[Column, ...]] = {}

# What a row of each table is.
ABOUT: dict[str, str] = {}


def _define(text: str) -> None:
    """Adds the tables of a text."""
    for part in re.sub(r"\n +", " ", text).split("## ")[1:]:
        head, lines = part.strip().split("\n\n")
        title, about = head.split("\n", 1)
        table, _, first = title.partition(" @")
        columns = []
        for line in lines.split("\n"):
            if (match := _COLUMN.fullmatch(line)) is None:
                raise ValueError(f"{line!r} is not a column: name type meaning [unit]; null: why")
            words = match["name"], match["type"], match["meaning"], match["unit"] or ""
            version = int(match["since"] or first or 1)
            key, foreign = bool(match["key"]), bool(match["foreign"])
            columns.append(Column(*words, match["null"], key, version, foreign))
        TABLES[table], ABOUT[table] = tuple(columns), about.replace("\n", " ")


_define(_TEXT)


def run_id(row: Mapping[str, Any]) -> str:
    """16 hex digits, a hash of everything in :data:`RUN_IDENTITY` that may decide bits.

    Time, git state and probe's version are not part of it, so the same command on the same
    software resumes its run, and an upgraded library starts a new one.
    """
    facts = {name: row.get(name) for name in RUN_IDENTITY}
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def column_names(table: str) -> list[str]:
    """The column names of a table, in order."""
    return [column.name for column in TABLES[table]]


def key_columns(table: str) -> list[str]:
    """The names of the columns that identify a row of a table."""
    return [column.name for column in TABLES[table] if column.key]


@cache
def arrow_schema(table: str) -> pyarrow.Schema:
    """The Arrow schema of a table, whose metadata has its name and the format's version."""
    import pyarrow as pa

    fields = [pa.field(column.name, column.arrow()) for column in TABLES[table]]
    return pa.schema(fields, {"probe.table": table, "probe.schema_version": str(VERSION)})


def described_schema(table: str) -> pyarrow.Schema:
    """The schema of files: ``arrow_schema`` with ``description``, ``unit`` and ``null``.

    ``null`` is what a null means; it is absent if the column is never null. ``unit`` is absent if
    there is none. The description of the table itself is ``probe.about``.
    """
    plain, about = arrow_schema(table), {b"probe.about": ABOUT[table].encode()}
    for place, column in enumerate(TABLES[table]):
        facts = {"description": column.meaning, "unit": column.unit, "null": column.null or ""}
        field = plain.field(place).with_metadata({k: v for k, v in facts.items() if v})
        plain = plain.set(place, field)
    return plain.with_metadata({**plain.metadata, **about})


def readme() -> str:
    """The text of ``results/README.md``; a test checks that the file has exactly this."""
    parts = [_INTRODUCTION.format(version=VERSION)]
    for table, columns in TABLES.items():
        parts.append(f"## {table}\n\n{ABOUT[table]}\n\n{_HEADER}")
        for column in columns:
            name = f"**{column.name}**" if column.key else column.name
            null = "never null" if column.null is None else column.null
            kind = f"json in {TYPES['json']}" if column.type == "json" else TYPES[column.type]
            cells = (name, kind, column.unit, column.meaning, null, str(column.since))
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts.append("")
    parts.append("## Versions\n")
    parts.extend(f"- {version}: {change}" for version, change in HISTORY.items())
    return "\n".join(parts) + "\n"


_HEADER = (
    "| column | type | unit | meaning | null means | since |\n| --- | --- | --- | --- | --- | --- |"
)
_INTRODUCTION = """\
# Results

Each experiment has a folder, in it each machine has a folder, and in it each table is a Parquet
file, so that results of several machines merge by copying folders. `probe.load("results/NAME")`
reads them as pandas frames; polars and DuckDB read the same files. Columns in **bold** identify a
row. An ulp (unit in the last place) is the distance from a floating-point number to the next one,
and eps is the distance from 1 to the next larger number of the data type.

Generated by `probe.case.schema.readme()`, format version {version}. Do not edit.
"""
