#pragma once
// A model family: declares its parameters once and writes the records of a micro-batch into any number of programs.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/batch_source.h"
#include "tape/builder.h"

namespace millrace::models {

/// A key of metrics.jsonl (record/metric_table.h) with its value.
struct Figure {
    std::string name;
    double value = 0;
};

/// What a family measures on held-out data beyond loss and accuracy.
struct Scored {
    std::vector<Figure> figures;
    std::string summary;             ///< for people, to follow "loss 0.0312"; empty when there is nothing to add
    std::vector<std::string> notes;  ///< further lines
    /// Fixed parameters of the member that a pass over the validation part has chosen, such as a threshold: its weights keep
    /// them.
    std::vector<Figure> chosen = {};
    std::string refused = {};  ///< why these weights cannot be the best ones; empty: they can

    /// Null when there is none of that name.
    [[nodiscard]] const Figure* find(const std::string& name) const {
        for (const Figure& figure : figures)
            if (figure.name == name) return &figure;
        return nullptr;
    }
};

/// Takes the batches of one pass over a part of the data, of one member: the device leaves a few tensors after each, the host
/// adds them up.
class Scoring {
public:
    virtual ~Scoring() = default;
    /// What Outputs::kept held after one batch, in that order, each as rows of columns.
    virtual void add(const std::vector<std::vector<double>>& tensors) = 0;
    [[nodiscard]] virtual Scored finish() const = 0;
};

/// Bytes that are saved with the weights, as a tensor of that name.
struct Attachment {
    std::string name, bytes;
};

/// The attachment that says how data is prepared (data/preparation.h). Checkpoints of earlier versions lack it.
inline constexpr const char* kPreparation = "data_preparation";

/// A part of the model whose time is reported separately: `component/<name>_ms` is that of the layers whose names begin with
/// `layers`.
struct Component {
    std::string name, layers;
};

/// How much of a step's conditional work the data asked for.
struct StepWork {
    double done = 0, all = 0;  ///< units of work that were there to do, and that a step without conditions has
    double steps_used = 0;     ///< of a recurrence
    bool all_computed = true;  ///< nothing was left out
};

/// What a program of a model leaves behind: views into that program.
struct Outputs {
    /// [K,1,rows,width]: scores of classes or predicted numbers. Of tokens, in evaluation, -log p of each: [K,1,rows * tokens,1].
    tape::Value prediction;
    std::vector<tensor::View> kept;  ///< what the host may read after a run (Builder::keep): of evaluation what scoring() takes
    /// Of a classifier in evaluation: the right classes and those with the largest scores, the columns of `prediction`, i32
    /// [K,1,rows,1]. Absent: there is no report per class.
    tensor::View labels = {}, predicted = {};
};

class Model {
public:
    virtual ~Model() = default;
    /// Declares all parameters, before Store::allocate(). Called once per store; the model then belongs to that store.
    virtual base::Status declare(tape::Store& store) = 0;
    /// The fields of a sample that build() gathers.
    [[nodiscard]] virtual data::Fields wants() const = 0;
    /// Gathers `rows` samples of `part`, runs forward and loss, and in training programs builder.backward().
    virtual Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) = 0;

    // What follows is optional.
    /// Before the first part of a step that runs in several: appends what losses that divide by something in the data need of all
    /// its `rows` (nn::total_tokens). Without it a step of such a loss depends on its parts.
    virtual void append_loss_totals(tape::Builder& /*builder*/, data::BatchSource& /*source*/, std::int32_t /*rows*/) const {}
    /// Appends what stands between the gradients of a whole step and its update.
    virtual void append_before_update(tape::Builder& /*builder*/) {}
    /// Whether the model refuses to be trained as an ensemble (K > 1).
    [[nodiscard]] virtual bool single_member_only() const { return false; }
    /// Rows a training micro-batch needs: 2 with batch normalization, since one row alone has no spread.
    [[nodiscard]] virtual std::int32_t minimum_rows() const { return 1; }
    /// Refuses a batch of so many rows that no program could be built for it.
    [[nodiscard]] virtual base::Status check_rows(std::int32_t /*rows*/) const { return base::ok(); }
    /// Whether outputs are classes, so that an accuracy means something.
    [[nodiscard]] virtual bool classifies() const { return true; }
    /// For one pass of a member over `part`, which is not trained on; null when loss and accuracy say it all.
    [[nodiscard]] virtual std::unique_ptr<Scoring> scoring(data::Part /*part*/, int /*member*/) const { return nullptr; }
    /// One line about its make, for people; empty when the name says it all. After declare().
    [[nodiscard]] virtual std::string description() const { return {}; }

    /// What a checkpoint holds beside the parameters.
    [[nodiscard]] virtual std::vector<Attachment> attachments() const { return {}; }
    /// A layer belongs to the first that it fits; data and update belong to none.
    [[nodiscard]] virtual std::vector<Component> components() const { return {}; }

    /// Ways of building that need less memory and more time than the one before, as a recipe writes them ("model.recompute =
    /// \"gates\""): BuildOptions::memory_level 1 is the first. Level 0 is what the recipe says.
    [[nodiscard]] virtual std::vector<std::string> memory_levels() const { return {}; }
    /// Figures of a training step from what its program kept, for benchmarks: work that depends on the data.
    [[nodiscard]] virtual std::optional<StepWork> step_work(const std::vector<std::vector<double>>& /*kept*/,
                                                            std::int32_t /*rows*/) const {
        return std::nullopt;
    }
};

}  // namespace millrace::models
