#pragma once
// Between the store and the tensors of a checkpoint: PyTorch-style names, one set per member.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/checkpoint.h"
#include "models/model.h"
#include "tape/store.h"

namespace millrace::models {

/// Model: parameters, running statistics and `num_batches_tracked` (I64 scalars, all equal to `batches`). Optimizer:
/// `<name>.exp_avg` and `.exp_avg_sq`, or `.momentum_buffer` when there is a first moment alone. Attachments join the model as U8
/// tensors; they and the store must outlive the result. Values are read from the store while they are written, windows of
/// kWindowBytes of each arena one after the other: no step may run meanwhile. Gives the tensors by member.
std::vector<io::MemberTensors> stored_tensors(tape::Store& store, std::int64_t batches,
                                              const std::vector<Attachment>& attachments = {});
constexpr std::size_t kWindowBytes = std::size_t{4} << 20;

/// The tensor of that name, or of the one that earlier versions gave it ("embed.places.weight" for "embed.position.weight",
/// "nodes.0.norm1.bias" for a transformer's "layers.0.norm1.bias"); null when the file has neither.
const io::TensorView* find_tensor(const io::SafetensorsFile& file, const std::string& name);

/// Writes a checkpoint's model (and optimizer when `with_optimizer`) into the store. Refuses other numbers of members, missing,
/// additional or differently shaped tensors (a list of each, shortened) and attachments of other bytes, naming the file. Tensors
/// of the group kSettings that the checkpoint lacks, as earlier versions may have left them out, stay as they are.
base::Status load_weights(tape::Store& store, const io::LoadedCheckpoint& checkpoint, bool with_optimizer,
                          const std::vector<Attachment>& attachments = {});
/// The same of the model alone, to start training from: the weights of one member start all, those of K members start member by
/// member. Tensors of the group kSettings stay as they are, and those of the checkpoint may be missing or of other shapes.
base::Status load_initial(tape::Store& store, const io::LoadedCheckpoint& checkpoint,
                          const std::vector<Attachment>& attachments = {});

/// Writes all elements of a member's fixed parameter of that name.
void write_fixed(tape::Store& store, const std::string& name, int member, double value);

}  // namespace millrace::models
