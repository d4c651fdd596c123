"""What is computed: a case, its operands, and how bits of two results are compared.

Read ``case`` (an operation with its sizes), then ``operands`` (numbers whose bits never change) and
``ulp`` (the only comparison there is). ``operation`` is the table of operations, ``geometry`` says
which inputs a window covers, ``layout`` how operands lie in memory, ``floats`` the formats.
``arguments`` turns what people write into checked values, ``errors`` says in one
line what was wrong, ``memory`` asks whether a run fits, ``schema`` names the columns that are
stored.
"""
