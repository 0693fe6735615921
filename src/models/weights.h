#pragma once
// Between the store and the tensors of a checkpoint: PyTorch-style names, one set per member.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/checkpoint.h"
#include "models/capabilities.h"
#include "tape/program.h"

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

/// The bytes of a tensor of U8, such as an attachment's.
base::Result<std::string> read_text(const io::SafetensorsFile& file, const io::TensorView& tensor);

/// How many rows the table of that name has besides some; refuses one that is missing or has no more.
base::Result<std::int32_t> stored_rows(const io::SafetensorsFile& file, const std::string& name, std::int32_t beside = 0);

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

/// A trained model with a store of its own and one program, to be asked something.
class TrainedModel {
public:
    /// `declare` adds to the store what the program reads beside the model's parameters, `build` writes the program.
    static base::Result<std::unique_ptr<TrainedModel>> create(const CheckpointRequest& request, std::unique_ptr<Model> model,
                                                              const std::string& program,
                                                              const std::function<base::Status(tape::Store&)>& declare,
                                                              const std::function<void(tape::Builder&)>& build);

    [[nodiscard]] tape::Store& store() const { return *store_; }
    [[nodiscard]] tape::Program& program() const { return *program_; }
    [[nodiscard]] std::string device() const;  ///< for people
    /// Whether the device did what it was asked.
    [[nodiscard]] base::Status check() const { return backend_->check(); }

private:
    std::unique_ptr<ops::Backend> backend_;
    std::unique_ptr<tape::Store> store_;
    std::unique_ptr<Model> model_;
    std::unique_ptr<tape::Arena> arena_;
    std::unique_ptr<tape::Program> program_;
};

}  // namespace millrace::models
