#pragma once
// What a model family measures on held-out data beyond loss and accuracy: the device leaves a few tensors after each evaluation
// batch, the host adds them up.

#include <string>
#include <vector>

namespace millrace::models {

/// A key of metrics.jsonl (record/metric_table.h) with its value.
struct Figure {
    std::string name;
    double value = 0;
};

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

/// Takes the batches of one pass over a part of the data, of one member.
class Scoring {
public:
    virtual ~Scoring() = default;
    /// What Outputs::kept held after one batch, in that order, each as rows of columns.
    virtual void add(const std::vector<std::vector<double>>& tensors) = 0;
    [[nodiscard]] virtual Scored finish() const = 0;
};

}  // namespace millrace::models
