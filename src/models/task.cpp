#include "models/task.h"

#include <fmt/format.h>

#include <cmath>

#include "models/class_weights.h"
#include "nn/losses.h"

namespace millrace::models {
namespace {

constexpr record::MetricInfo kRegressionMetrics[] = {
    {"r2", "ratio", record::MetricKind::kGauge, record::MetricScope::kTrain,
     "Share of the answers' variance that a regression explains: 1 is perfect, 0 is always answering their mean."},
    {"mean_absolute_error", "", record::MetricKind::kGauge, record::MetricScope::kTrain,
     "Mean distance of a regression's answers from the right ones, in their own unit."},
};

/// Batches: predictions, answers.
class RegressionScoring final : public Scoring {
public:
    RegressionScoring(double deviation, std::string name) : deviation_(deviation), name_(std::move(name)) {}

    void add(const std::vector<std::vector<double>>& tensors) override {
        for (std::size_t i = 0; i < tensors[1].size(); ++i) {
            const double wanted = tensors[1][i], error = tensors[0][i] - wanted;
            rows_ += 1;
            absolute_ += std::abs(error);
            squares_ += error * error;
            const double away = wanted - mean_;
            mean_ += away / rows_;
            spread_ += away * (wanted - mean_);
        }
    }
    [[nodiscard]] Scored finish() const override {
        const double r2 = spread_ > 0 ? 1 - squares_ / spread_ : 0, error = rows_ > 0 ? deviation_ * absolute_ / rows_ : 0;
        Scored scored;
        scored.figures = {{"r2", r2}, {"mean_absolute_error", error}};
        scored.summary = fmt::format("R2 {:.4f} mean absolute error {:.4g}{}", r2, error, name_.empty() ? "" : " of " + name_);
        return scored;
    }

private:
    double deviation_;
    std::string name_;
    double rows_ = 0, absolute_ = 0, squares_ = 0, mean_ = 0, spread_ = 0;
};

}  // namespace

void Task::declare(tape::Store& store) {
    if (!class_weights.empty())
        weights = store.add_vector({"loss.weights"}, outputs, tape::Init::blocks(class_weights), tape::kSettings);
}

data::Fields Task::wants() const {
    return {input,
            regression ? data::Field{"target", data::Field::Kind::real, 1} : data::Field{"label", data::Field::Kind::integer, 1}};
}

tensor::View Task::gather(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows,
                          const tensor::View& x) const {
    return source.gather(builder, part, rows, {{input.name, x}, {regression ? "target" : "label"}})[1];
}

Outputs Task::judge(tape::Builder& builder, const tape::Value& prediction, const tensor::View& answers) const {
    Outputs left{prediction, {}, {}};
    if (regression) {
        nn::mse(builder, prediction, answers);
        if (!builder.training()) left.kept = {prediction.view, answers};
        for (const tensor::View& view : left.kept) builder.keep(view);
    } else {
        const bool weighted = builder.training() && !class_weights.empty();
        left.predicted =
            nn::cross_entropy(builder, prediction, answers, weighted ? builder.store().parameter(weights) : tensor::View{});
        left.labels = answers;
    }
    if (builder.training()) builder.backward();
    return left;
}

std::unique_ptr<Scoring> Task::scoring() const {
    if (!regression) return nullptr;
    return std::make_unique<RegressionScoring>(deviation, name);
}

base::Result<Task> task_of(const base::Recipe& recipe, const data::Fields& fields) {
    Task task;
    MILLRACE_SET(task.class_weights, class_weights(recipe, fields));
    for (const char* each : {"vector", "image"})
        if (const data::Field* input = data::find_field(fields, each)) {
            task.input = {each, data::Field::Kind::real, input->width};
            task.input.shape = input->shape;
        }
    if (const data::Field* label = data::find_field(fields, "label")) {
        task.outputs = label->limit;
    } else if (const data::Field* target = data::find_field(fields, "target")) {
        task.regression = true;
        task.outputs = target->width;
        if (target->scaling) task.mean = target->scaling->mean.front(), task.deviation = target->scaling->deviation.front();
        if (!target->names.empty()) task.name = target->names.front();
    }
    return task;
}

std::span<const record::MetricInfo> regression_metrics() { return kRegressionMetrics; }

}  // namespace millrace::models
