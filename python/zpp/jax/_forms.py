# Part of zpp, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms that a step has in files, and the ways between them."""

import re
from collections.abc import Callable

from jax.extend.mlir import ir
from jax.interpreters.mlir import make_ir_context
from jaxlib import _hlo, _jax

from zpp._text import FORMS, read_message, read_text
from zpp.jax._export import Step, read_step
from zpp.jax._modules import artifact_of, bytecode_of, entries_of, main_of, operations_in
from zpp.jax._modules import text_of, to_hlo
from zpp.jax._partitioner import hlo_module_in, with_listed_groups
from zpp.jax._proto import write_field


def read(content: bytes) -> tuple[str, Step | str]:
    """Returns the form of a step that zpp-opt does not read, and an export or text."""
    form = form_of(content)
    if form in ("export", "bytecode", "artifact"):
        return form, read_step(content)
    is_local = False
    try:
        if form == "hlo-text":
            text = content.decode()
            hlo = _hlo.hlo_module_from_text(text)
            is_local = _LOCAL.search(text) is not None
        else:
            hlo = _hlo.HloModule.from_serialized_hlo_module_proto(
                hlo_module_in(content) if form == "hlo-proto" else content)
    except Exception as error:
        raise ValueError(f"expected a step as {', '.join(FORMS)}, but got something "
                         f"else: {error}") from None
    try:
        with make_ir_context() as context:
            module = _to_stablehlo(hlo, context)
            _join_starts(module)
            if is_local:
                _note_parts(module)
            attributes = module.operation.attributes
            if _FRONTEND in attributes and _MACHINE in attributes[_FRONTEND]:
                attributes[_MACHINE] = ir.DictAttr.get(
                    {"mesh": attributes[_FRONTEND][_MACHINE]}, context)
            return form, text_of(module)
    except Exception as error:
        # The whole operation may follow, with all of its types.
        message = read_message(error).split("\n")[0].removeprefix("error: ")
        raise ValueError(f"expected HLO that jaxlib converts to StableHLO, but got "
                         f"other HLO: {message}") from None


def _to_stablehlo(hlo: _hlo.HloModule, context: ir.Context) -> ir.Module:
    """Converts a module of HLO.

    Groups along axes become lists where jaxlib 0.10 does not keep them: it loses the
    order of devices that a mesh may have, and makes an op that its own verifier refuses
    of an all-to-all of a tuple.
    """
    def convert(hlo: _hlo.HloModule) -> ir.Module:
        return ir.Module.parse(_jax.mlir.hlo_to_stablehlo(
            hlo.as_serialized_hlo_module_proto()), context)

    if "device_ids=(" not in hlo.to_string():
        try:
            return convert(hlo)
        except ir.MLIRError as error:
            if "all_to_all" not in str(error):
                raise
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return convert(_hlo.hlo_module_from_text(
        with_listed_groups(hlo.to_string(options))))


def _join_starts(module: ir.Module) -> None:
    """Makes plain collectives of starts and ends, which XLA splits again later."""
    for start in [op for op in operations_in(module) if op.name == "stablehlo.async_start"]:
        ends = [use.owner for use in start.results[0].uses]
        if [end.name for end in ends] != ["stablehlo.async_done"]:
            continue
        body = start.regions[0].blocks[0]
        for argument, operand in zip(body.arguments, start.operands, strict=True):
            argument.replace_all_uses_with(operand)
        *ops, end = body.operations
        for op in ops:
            op.move_before(start)
        for old, new in zip(ends[0].results, end.operands, strict=True):
            old.replace_all_uses_with(new)
        ends[0].erase()
        start.erase()


#: The main computation of HLO that XLA has partitioned, whose name says so.
_LOCAL = re.compile(r"^ENTRY %?[\w.-]+_spmd\b", re.MULTILINE)


def _note_parts(module: ir.Module) -> None:
    """Notes which parts of its arguments the program of a device takes, as the protocol
    buffer of a partitioned module does, and its text does not."""
    main = main_of(module)
    name = "mhlo.spmd_parameters_shardings"
    if name not in module.operation.attributes:
        with module.context:
            module.operation.attributes[name] = ir.ArrayAttr.get([
                entries["mhlo.sharding"] if "mhlo.sharding" in entries
                else ir.StringAttr.get("{replicated}")
                for entries in entries_of(main, "arg_attrs")])


def form_of(content: bytes) -> str:
    """The form of the content of a file, recognized by its beginning."""
    if content[:4] == b"ML\xefR":
        return "artifact" if b"StableHLO_v" in content[:64] else "bytecode"
    if content[:9] == b"HloModule":
        return "hlo-text"
    if found := read_text(content):
        return found[0]
    # A flatbuffer begins with an offset into it, a protocol buffer with the tag
    # of its first field: the module of an HloProto, or the name of a module.
    if content[:1] != b"\x0a":
        return "export"
    return ("hlo-proto" if hlo_module_in(content)[:1] == b"\x0a"
            else "hlo-module-proto")


def write(text: str, form: str, step: Step | None = None) -> bytes:
    """Converts a module from text to another form; "export" needs the step beside it."""
    if form == "export":
        if step is None:
            raise ValueError("expected what jax.export has written to write "
                             "such a file again, but got a module alone")
        return bytes(step.with_text(text).exported.serialize())
    with make_ir_context() as context:
        try:
            return _WRITERS[form](ir.Module.parse(text, context))
        except Exception as error:
            raise ValueError(f"expected a module that can be written as "
                             f"{form}, but got another one: "
                             f"{read_message(error)}") from None


def _computation(module: ir.Module):
    attributes = module.operation.attributes
    if _MACHINE in attributes:
        # The only attributes of a module that HLO keeps.
        known = attributes.get(_FRONTEND, ())
        attributes[_FRONTEND] = ir.DictAttr.get(
            {entry.name: entry.attr for entry in known}
            | {_MACHINE: ir.DictAttr(attributes[_MACHINE])["mesh"]},
            module.context)
    return to_hlo(module)


_FRONTEND, _MACHINE = "mhlo.frontend_attributes", "zpp.machine"


_WRITERS: dict[str, Callable[[ir.Module], bytes]] = {
    "bytecode": bytecode_of,
    "artifact": artifact_of,
    "hlo-text": lambda module: _computation(module).as_hlo_text().encode(),
    # As XLA dumps it.
    "hlo-proto": lambda module: write_field(
        1, _computation(module).as_serialized_hlo_module_proto()),
    "hlo-module-proto": lambda module: _computation(
        module).as_serialized_hlo_module_proto(),
}
