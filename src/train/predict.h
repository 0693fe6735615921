#pragma once
// What the best weights of a run say about other data.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/sample_set.h"
#include "io/file.h"
#include "io/table_file.h"

namespace millrace::train {

struct PredictRequest {
    io::Path run;
    std::vector<io::Path> inputs;  ///< in any form of data.path
    io::Path out;                  ///< .csv, .jsonl or .npy
    std::string device = {};       ///< empty: as the run
    std::int64_t batch = 0;        ///< rows at once; 0: as the run evaluates
    std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};
};

struct PredictReport {
    std::string device, unit;  ///< what a sample is called: "pictures"
    std::string summary = {};  ///< what the family has to say; empty: nothing
    std::uint64_t samples = 0;
    std::uint64_t failed = 0;  ///< of them without a prediction
    double seconds = 0;        ///< of the predictions themselves
};

/// Writes a row for every sample of the inputs, in their order, or nothing at all. Rows of what cannot be read have empty cells,
/// and the log names the first of them.
base::Result<PredictReport> predict(const PredictRequest& request);

/// What stands behind the name of a sample, and its numbers alone.
struct Answer {
    std::vector<io::Cell> cells;
    std::vector<float> values;
};

/// Mean and standard deviation over members.
struct Spread {
    double mean = 0, deviation = 0;
};
Spread spread_of(std::span<const double> values);

/// Classes by the mean of the members' probabilities, or the mean of the numbers that they predict, in the answers' own unit. Of
/// several members also the spread, of the probability of the class chosen or of the number.
class Answers {
public:
    static constexpr std::size_t kMostColumns = 1024;  ///< of more classes only the chosen one's probability is a cell

    Answers(const data::Preparation& prepared, std::size_t members) : prepared_(prepared), members_(members) {}

    /// "class", "p_cat", "p_dog", "spread"
    [[nodiscard]] std::vector<std::string> columns() const;
    [[nodiscard]] std::size_t values() const { return prepared_.target ? 1 : static_cast<std::size_t>(prepared_.classes); }
    /// Of row `row` of `outputs` [members, rows, width], as Engine::read_outputs() gives them. Without cells where these are not
    /// finite.
    [[nodiscard]] Answer of(std::span<const double> outputs, std::size_t row) const;

private:
    const data::Preparation& prepared_;
    std::size_t members_;
};

}  // namespace millrace::train
