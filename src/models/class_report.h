#pragma once
// What labels and predictions of a classifier say about it: the confusion matrix, also as a picture, and the figures of
// each class.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/fields.h"

namespace millrace::models {

struct ClassFigures {
    std::uint64_t samples = 0, predicted = 0, correct = 0;  ///< with this label; predicted as this class; both
    double precision = 0, recall = 0, f1 = 0;
};

/// Rows by label and prediction. There may be 65,536 classes, so that pairs without a row have no place.
using Confusion = std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t>;

struct ClassReport {
    std::uint64_t samples = 0, correct = 0;
    std::vector<ClassFigures> classes;
    Confusion confusion;
    double accuracy = 0, macro_f1 = 0, mcc = 0;

    [[nodiscard]] std::uint64_t at(std::size_t label, std::size_t prediction) const {
        const auto found = confusion.find({static_cast<std::int32_t>(label), static_cast<std::int32_t>(prediction)});
        return found == confusion.end() ? 0 : found->second;
    }
};

/// Labels and predictions are in [0, classes); anything else is a broken invariant.
///
/// Where a denominator is 0 the figure is 0: precision of a class that was never predicted, recall of one without samples, F1 of
/// one with neither. macro_f1 is the mean over the classes that have samples or were predicted. mcc is Matthews' coefficient for
/// any number of classes, (c s - sum p_k t_k) / sqrt((s^2 - sum p_k^2) (s^2 - sum t_k^2)) with s rows, c of them right, t_k with
/// label k and p_k predicted as k; 0 when all labels, or all predictions, are of one class. accuracy of no rows is 0.
ClassReport class_report(Confusion confusion, std::int32_t classes);

/// A line per class, the means, and the confusion matrix of up to 32 classes. Figures whose denominator is 0 are a dash. `names`
/// may be empty: classes are then their numbers. Ends with a newline.
std::string class_table(const ClassReport& report, const std::vector<std::string>& names = {});

/// Wrong predictions, the most frequent first, at most so many.
std::vector<std::pair<Confusion::key_type, std::uint64_t>> most_confused(const ClassReport& report, std::size_t most);

/// Of the classes of a model that wants these fields of the data; empty: the data has no name for every one.
std::vector<std::string> class_names(const data::Fields& wants, const data::Fields& has, std::size_t classes);

/// SVG for light and dark pages: true classes down, predicted ones across, shaded by the share of the row. Up to 20 classes have
/// counts, up to 40 their names (numbers where `names` is empty), more than 128 share cells. Above 20 classes the most frequent
/// confusions are listed, above 1,024 they alone. `about` says which rows were predicted.
std::string confusion_svg(const ClassReport& report, const std::vector<std::string>& names, const std::string& about);

}  // namespace millrace::models
