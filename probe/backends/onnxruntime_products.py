"""ONNX's matrix products and sums: a model of one MatMul, Gemm or ReduceSum.

A matrix product with a bias is Gemm, as PyTorch's exporter writes linear layers, and where Gemm
can't be (vectors, stacks of matrices) MatMul and Add. A dense layer is Gemm with a bias and without
one; its weights are (filters, in_channels) and ``transB`` is 1, as in exported linear layers.
"""

#: The operator set of the models, in which ReduceSum's axes are still an attribute.
OPSET, IR_VERSION = 11, 6


def model(onnx, spec, kind, constant, rank):
    """The ModelProto of a spec for an x of that many dimensions; initializers are still empty."""
    helper = onnx.helper
    vector = spec["op"] == "dot" and spec["filters"] == 1
    shapes = {"x": [f"size{axis}" for axis in range(rank - 1)] + [spec["in_channels"]]}
    if spec["op"] != "sum":
        shapes["w"] = [spec["in_channels"]] + ([] if vector else [spec["filters"]])
    if spec["op"] == "dense":
        shapes["w"] = shapes["w"][::-1]
    if spec["bias"]:
        shapes["b"] = [spec["filters"]]
    fed, kept = [], []
    for name, shape in shapes.items():
        if constant and name != "x":
            kept.append(onnx.TensorProto(name=name, data_type=kind, dims=shape))
        else:
            fed.append(helper.make_tensor_value_info(name, kind, shape))
    returned = [helper.make_tensor_value_info("y", kind, None)]
    graph = helper.make_graph(nodes(helper, spec, rank, vector), "product", fed, returned, kept)
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)


def nodes(helper, spec, rank, vector):
    """The nodes from x, w and b to y."""
    if spec["op"] == "sum":
        return [helper.make_node("ReduceSum", ["x"], ["y"], axes=[rank - 1], keepdims=0)]
    if spec["op"] == "dense":
        given = ["x", "w", "b"][: 2 + spec["bias"]]
        return [helper.make_node("Gemm", given, ["y"], transB=1)]
    if not spec["bias"]:
        return [helper.make_node("MatMul", ["x", "w"], ["y"])]
    if rank == 2 and not vector:
        return [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    product = helper.make_node("MatMul", ["x", "w"], ["product"])
    return [product, helper.make_node("Add", ["product", "b"], ["y"])]
