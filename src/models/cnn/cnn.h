#pragma once
// A small network for images of any size, grey or colour: convolutions with relu and pooling, a hidden layer with dropout, a
// linear head.

#include <vector>

#include "models/task.h"
#include "nn/conv.h"
#include "nn/dense.h"

namespace millrace::models {

struct CnnConfig {
    Task task = {};  ///< its input has a shape
    std::vector<std::int32_t> channels{32, 64};
    std::int32_t kernel = 3, pool = 2, hidden = 128;
    float dropout = 0.25f;
};

class Cnn final : public TaskModel {
public:
    explicit Cnn(CnnConfig config) : config_(std::move(config)) {}

    /// Refuses a chain that pools the image away.
    base::Status declare(tape::Store& store) override;
    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;

private:
    [[nodiscard]] const Task& task() const override { return config_.task; }
    CnnConfig config_;
    std::vector<nn::Conv> convs_;
    nn::Dense hidden_, out_;
};

}  // namespace millrace::models
