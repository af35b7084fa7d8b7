module aliquot/apiserver

go 1.26
