#include "testing/source_files.h"

#include <fstream>
#include <sstream>

namespace everwarm {

std::string SourceFile(const std::string& path) {
  return std::string(EVERWARM_SOURCE_DIR) + "/" + path;
}

std::string TestText() {
  std::ifstream file(SourceFile("tests/data/text.txt"));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace everwarm
