#pragma once
// What networks for one input and one answer per sample read and how they are judged: the same for all of them, whether they name
// a class or predict a number. What a class counts in their training loss: train.class_weights.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "data/fields.h"
#include "models/registry.h"

namespace millrace::models {

struct Task {
    data::Field input{"image", data::Field::Kind::real, 784};
    std::int32_t outputs = 10;                       ///< classes, or 1
    bool regression = false;                         ///< answers are numbers
    double mean = 0, deviation = 1;                  ///< of these: what is predicted is (number - mean) / deviation
    std::string name = {};                           ///< what is predicted, for people: "price"
    std::vector<double> class_weights = {};          ///< of the training loss; empty: all rows count alike
    tape::ParameterId weights = tape::kNoParameter;  ///< those, once declared

    /// As Model::declare().
    void declare(tape::Store& store);

    [[nodiscard]] data::Fields wants() const;
    /// Gathers inputs to `x` and gives the answers.
    tensor::View gather(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows,
                        const tensor::View& x) const;
    /// Cross-entropy or mean squared error of prediction [K,1,rows,outputs], and in training the way back.
    Outputs judge(tape::Builder& builder, const tape::Value& prediction, const tensor::View& answers) const;
    /// Of a regression: R2 and the mean absolute error in the answers' own units. Else null.
    [[nodiscard]] std::unique_ptr<Scoring> scoring() const;
};

/// Of data with an image or a vector, and a label or a target. What is missing is as above, for require_fields() to refuse.
/// Refuses train.class_weights for a target.
base::Result<Task> task_of(const base::Recipe& recipe, const data::Fields& fields);

/// N / (classes with samples * n_c) for N samples, n_c of class c: the mean over all samples is 1. 1 for classes without any.
std::vector<double> balanced_weights(const std::vector<std::int64_t>& counts);

/// Of "balanced" one for each class of the data's labels; all 1 where the data does not say how frequent they are, as when a
/// checkpoint will bring the weights. Empty: no class is weighted. Refuses "balanced" where a number is predicted.
base::Result<std::vector<double>> class_weights(const base::Recipe& recipe, const data::Fields& fields);

/// A network for such a task.
class TaskModel : public Model {
public:
    [[nodiscard]] data::Fields wants() const final { return task().wants(); }
    [[nodiscard]] bool classifies() const final { return !task().regression; }
    [[nodiscard]] std::unique_ptr<Scoring> scoring(data::Part /*part*/, int /*member*/) const final { return task().scoring(); }

private:
    [[nodiscard]] virtual const Task& task() const = 0;
};

/// The entry of a family of such networks.
Family task_family(std::string name, std::vector<std::string> presets, decltype(Family::schema) schema,
                   decltype(Family::make) make);

}  // namespace millrace::models
