#pragma once
// From what a model leaves of a sample to what it says about it, for people.

#include <span>
#include <string>
#include <vector>

#include "data/sample_set.h"
#include "io/table_file.h"

namespace millrace::train {

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
