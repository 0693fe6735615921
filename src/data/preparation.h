#pragma once
// How raw data becomes numbers that a model reads: decided by the data of training, kept in checkpoints, and used again on all
// other data.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/fields.h"

namespace millrace::data {

/// A column of a table: a number, or one of some words.
struct Column {
    std::string name;
    bool category = false;
    std::vector<std::string> words = {};  ///< word i becomes number i + 1; any other, and a missing one, number 0
    double mean = 0, deviation = 1;       ///< of a number; a missing one becomes the mean

    /// Numbers that it becomes: one, or for a category one for each word and one for those never seen.
    [[nodiscard]] std::size_t width() const { return category ? words.size() + 1 : 1; }
    bool operator==(const Column&) const = default;
};

/// A number that is predicted: a model predicts (number - mean) / deviation.
struct Target {
    std::string name;
    double mean = 0, deviation = 1;
    bool operator==(const Target&) const = default;
};

struct Preparation {
    Shape shape;                   ///< of images
    std::string resize;            ///< of pictures: "fit" or "crop"
    std::vector<float> mean = {};  ///< of images by channel, in shares of 255 where they are bytes; of arrays by column
    std::vector<float> deviation = {};
    std::vector<Column> columns = {};           ///< of a table
    std::string answer = {};                    ///< name of the column of classes or of the target, where it has one
    std::int32_t classes = 0;                   ///< 0: a number is predicted
    std::vector<std::string> class_names = {};  ///< one for each class, or none
    std::optional<Target> target = {};

    /// Elements of an input.
    [[nodiscard]] std::size_t width() const;
    bool operator==(const Preparation&) const = default;
};

/// JSON.
std::string encode(const Preparation& preparation);
/// Refuses what encode() cannot have given; `place` names the text in errors.
base::Result<Preparation> decode_preparation(const std::string& text, const std::string& place);

/// Those of classes whose names are `names`: the number of each, by the stored names where there are some. Refuses a name that
/// the stored ones lack.
base::Result<std::vector<std::int32_t>> number_classes(const std::vector<std::string>& names, const Preparation& stored,
                                                       const std::string& place);

}  // namespace millrace::data
