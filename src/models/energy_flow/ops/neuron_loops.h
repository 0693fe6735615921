#pragma once
// The neuron over tiles of rows, once per instruction set (ops/cpu/isa.h).

#include "ops/cpu/isa.h"

namespace millrace::ops::cpu {

/// The neuron's tensors, and their gradients (added to), as flow.h names them.
template <class Pointer>
struct NeuronTensors {
    Pointer place_w, place_b, w0, b0, gain1, shift1, w3, b3, gain4, shift4, w6, b6;
};
using NeuronWeights = NeuronTensors<const float*>;
using NeuronGradients = NeuronTensors<float*>;
constexpr int kNeuronTile = 32;  ///< rows that pass the neuron together

/// flow [4][kNeuronTile] = x, y, z, energy; out and dout [kNeuronTile][64]; dflow [4][kNeuronTile] without the energy's own
/// column of dout.
struct NeuronLoops {
    void (*forward)(const NeuronWeights& w, const float* flow, float* out);
    void (*backward)(const NeuronWeights& w, const float* flow, const float* dout, const NeuronGradients& d, float* dflow);
};
MILLRACE_ISA_TABLE(NeuronLoops, neuron_loops)

}  // namespace millrace::ops::cpu
