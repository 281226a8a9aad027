"""Deploy tools' questions, and answers as each of them reads them. Pure but for asking the gate."""
