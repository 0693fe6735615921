#pragma once
// A classifier's confusion matrix as a picture.

#include "models/class_report.h"

namespace millrace::models {

/// SVG for light and dark pages: true classes down, predicted ones across, shaded by the share of the row. Up to 20 classes have
/// counts, up to 40 their names (numbers where `names` is empty), more than 128 share cells. Above 20 classes the most frequent
/// confusions are listed, above 1,024 they alone. `about` says which rows were predicted.
std::string confusion_svg(const ClassReport& report, const std::vector<std::string>& names, const std::string& about);

}  // namespace millrace::models
