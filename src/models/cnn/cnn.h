#pragma once
// A small network for square grey images: convolutions with relu and pooling, a hidden layer with dropout, a linear head.

#include <vector>

#include "models/model.h"
#include "nn/conv.h"
#include "nn/dense.h"

namespace millrace::models {

struct CnnConfig {
    std::int32_t side = 28, classes = 10;
    std::vector<std::int32_t> channels{32, 64};
    std::int32_t kernel = 3, pool = 2, hidden = 128;
    float dropout = 0.25f;
};

class Cnn final : public Model {
public:
    explicit Cnn(CnnConfig config) : config_(std::move(config)) {}

    /// Refuses a chain that pools the image away.
    base::Status declare(tape::Store& store) override;
    [[nodiscard]] data::Fields wants() const override;  ///< image and label
    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;

private:
    CnnConfig config_;
    std::vector<nn::Conv> convs_;
    nn::Dense hidden_, out_;
};

}  // namespace millrace::models
