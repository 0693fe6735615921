#pragma once
// A model family: declares its parameters once and writes the records of a micro-batch into any number of programs.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/batch_source.h"
#include "models/scoring.h"
#include "record/flow_trace.h"
#include "tape/builder.h"

namespace millrace::models {

/// Bytes that are saved with the weights, as a tensor of that name.
struct Attachment {
    std::string name, bytes;
};

/// A part of the model whose time is told apart: `component/<name>_ms` is that of the layers whose names begin with `layers`.
struct Component {
    std::string name, layers;
};

class Model {
public:
    virtual ~Model() = default;
    /// Declares all parameters, before Store::allocate(). Called once per store; the model then belongs to that store.
    virtual base::Status declare(tape::Store& store) = 0;
    /// Gathers `rows` samples of `part`, runs forward and loss, and in training programs builder.backward(). Sets logits() and
    /// watched(): in evaluation programs what scoring() takes.
    virtual void build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) = 0;
    /// Whether the model refuses to be trained as an ensemble (K > 1).
    [[nodiscard]] virtual bool single_member_only() const { return false; }
    /// Rows a training micro-batch needs: 2 with batch normalization, since one row alone has no spread.
    [[nodiscard]] virtual std::int32_t minimum_rows() const { return 1; }
    /// Refuses a batch of so many rows that no program could be built for it.
    [[nodiscard]] virtual base::Status check_rows(std::int32_t rows) const {
        (void)rows;
        return base::ok();
    }
    /// Whether outputs are classes, so that an accuracy means something.
    [[nodiscard]] virtual bool classifies() const { return true; }
    /// For one pass over held-out data; null when loss and accuracy say it all.
    [[nodiscard]] virtual std::unique_ptr<Scoring> scoring() const { return nullptr; }
    /// One line about its make, for people; empty when the name says it all. After declare().
    [[nodiscard]] virtual std::string description() const { return {}; }

    /// As build() of one sample for evaluation, with everything kept that its flows did; watched() then gives what trace_of()
    /// takes. False, and nothing is built: the model has no flows.
    virtual bool build_trace(tape::Builder& builder, data::BatchSource& source, data::Part part) {
        (void)builder, (void)source, (void)part;
        return false;
    }
    /// What Model::watched() views held after one run of such a program.
    [[nodiscard]] virtual record::FlowTrace trace_of(const std::vector<std::vector<double>>& tensors) const {
        (void)tensors;
        return {};
    }
    /// What a checkpoint holds beside the parameters.
    [[nodiscard]] virtual std::vector<Attachment> attachments() const { return {}; }
    /// A layer belongs to the first that it fits; data and update belong to none.
    [[nodiscard]] virtual std::vector<Component> components() const { return {}; }

    /// Changes to the next way of building that needs less memory and more time, and says how a recipe writes it
    /// ("model.recompute = \"gates\""); empty when there is none.
    virtual std::string spare_memory() { return {}; }

    /// Output of the last build, [K,1,rows,classes]: a view into that builder's program.
    [[nodiscard]] const tape::Value& logits() const { return logits_; }
    /// Of the last build: what the host may read after a run of the program, kept by Builder::keep.
    [[nodiscard]] const std::vector<tensor::View>& watched() const { return watched_; }

protected:
    tape::Value logits_;
    std::vector<tensor::View> watched_;
};

}  // namespace millrace::models
